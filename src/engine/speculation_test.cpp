#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <array>

namespace folio {
namespace {

TEST(SpeculationStats, CountsByPosition) {
  SpeculationStats stats;
  EXPECT_EQ(stats.accepted_length(), 0);
  EXPECT_EQ(speculation_summary(stats), "");
  stats.add(5, 2);
  stats.add(3, 3);
  stats.add(5, 0);
  EXPECT_EQ(stats.drafted, (std::vector<int64_t>{3, 3, 3, 2, 2}));
  EXPECT_EQ(stats.accepted, (std::vector<int64_t>{2, 2, 1, 0, 0}));
  EXPECT_EQ(stats.drafted_tokens(), 13);
  EXPECT_EQ(stats.accepted_tokens(), 5);
  EXPECT_DOUBLE_EQ(stats.accepted_length(), 1 + 5.0 / 3);
  EXPECT_EQ(stats.by_accepted(), (std::vector<int64_t>{1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(speculation_summary(stats),
            "2.67 tokens a verification, 5 of 13 drafts accepted, by position 67 % 67 % 33 % 0 % 0 %");
}

TEST(SpeculationStats, CountsLengthsAndWhatWasNotDrafted) {
  SpeculationStats stats;
  EXPECT_EQ(stats.by_accepted(), std::vector<int64_t>{0});
  stats.add_length(2);
  stats.add_length(0);
  stats.add_length(2);
  EXPECT_EQ(stats.lengths, (std::vector<int64_t>{1, 0, 2}));
  stats.add_block(3);
  EXPECT_EQ(stats.widths, (std::vector<int64_t>{0, 0, 0, 1}));
  stats.add(2, 2);
  stats.skipped_steps = 7;
  EXPECT_NE(speculation_summary(stats).find("7 steps without drafting"), std::string::npos);
}

TEST(SpeculationStats, SaysWhenNoDraftPaid) {
  SpeculationStats stats;
  stats.skipped_steps = 7;
  EXPECT_EQ(speculation_summary(stats), "no draft verified; 7 steps without drafting, which did not pay");
}

TEST(ForcedAcceptance, HasTheMeanThatIsAskedFor) {
  // 3.51 of 5 drafts: two always, the third in 51 of 100 cases (spec runtime 7.6).
  constexpr int64_t kDraws = 40000;
  std::array<int64_t, 6> counts{};
  for (int64_t i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(ForcedAcceptance(3.51).accepts(static_cast<uint64_t>(i % 7), i, 5))];
  }
  EXPECT_EQ(counts[2] + counts[3], kDraws);
  EXPECT_NEAR(static_cast<double>(counts[3]) / kDraws, 0.51, 0.01);  // four standard deviations
}

TEST(ForcedAcceptance, DependsOnRequestAndPositionAlone) {
  const ForcedAcceptance forced(2.5);
  bool differs = false;
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(forced.accepts(3, i, 5), forced.accepts(3, i, 5));
    differs = differs || forced.accepts(3, i, 5) != forced.accepts(4, i, 5);
    EXPECT_EQ(forced.accepts(3, i, 1), 1) << "no more than there are";
  }
  EXPECT_TRUE(differs);
  for (int32_t accepted = 0; accepted <= 5; ++accepted) {
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(ForcedAcceptance(1 + accepted).accepts(1, i, 5), accepted);
  }
}

TEST(ForcedAcceptance, Refusals) {
  EXPECT_FALSE(forced_refusal(1, 5));
  EXPECT_FALSE(forced_refusal(6, 5));
  EXPECT_NE(forced_refusal(6.5, 5)->find("must be from 1 to 6"), std::string::npos);
  EXPECT_NE(forced_refusal(0.5, 5)->find("0.5"), std::string::npos);
  EXPECT_NE(forced_refusal(7, 5, "the model's block")->find("one more than the model's block"), std::string::npos);
  EXPECT_NE(forced_refusal(2, 0)->find("--speculative dspark"), std::string::npos);
}

}  // namespace
}  // namespace folio
