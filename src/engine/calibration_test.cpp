#include "engine/calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "engine/verify_schedule.h"

namespace folio {
namespace {

constexpr int32_t kWidth = 5;

// Blocks whose drafts are accepted with the probability that their logits mean at `truth`; a tenth of the answers end
// inside the block.
std::vector<DraftBlock> synthetic_blocks(uint64_t count, const std::vector<double>& truth, uint64_t seed) {
  std::vector<DraftBlock> blocks;
  for (uint64_t n = 0; n < count; ++n) {
    DraftBlock block;
    const double mood = 1.5 + 1.5 * random_normal(seed, 0, n);
    for (uint64_t i = 0; i < truth.size(); ++i) {
      block.logits.push_back(static_cast<float>(mood + 0.8 * random_normal(seed, 1 + i, n)));
    }
    block.known = random_uniform(seed, 20, n) < 0.9 ? kWidth : 1 + static_cast<int32_t>(n % kWidth);
    while (block.accepted < block.known) {
      const auto i = static_cast<size_t>(block.accepted);
      if (random_uniform(seed, 30 + i, n) >= calibrated_confidence(block.logits[i], truth[i])) break;
      ++block.accepted;
    }
    blocks.push_back(block);
  }
  return blocks;
}

TEST(Calibration, RecoversKnownTemperatures) {
  for (const auto& truth : {std::vector<double>{2, 1.6, 1.3, 1, 0.8}, std::vector<double>{0.5, 0.7, 1, 1.5, 2.5}}) {
    const std::vector<DraftBlock> blocks = synthetic_blocks(200'000, truth, 6);
    const std::vector<double> found = fit_temperatures(blocks, kWidth);
    ASSERT_EQ(found.size(), truth.size());
    for (size_t i = 0; i < truth.size(); ++i) {
      std::printf("  position %zu: %.3f of %.3f\n", i, found[i], truth[i]);
      EXPECT_NEAR(found[i] / truth[i], 1, 0.05) << "position " << i;
    }
  }
}

TEST(Calibration, ErrorFallsOnBlocksThatWereNotFitted) {
  const std::vector<double> truth = {2, 1.6, 1.3, 1.7, 2.2}, plain(kWidth, 1.0);
  const std::vector<double> fitted = fit_temperatures(synthetic_blocks(30'000, truth, 1), kWidth);
  const std::vector<DraftBlock> others = synthetic_blocks(30'000, truth, 2);
  for (int32_t position = 0; position < kWidth; ++position) {
    const double before = reliability(others, position, plain).ece, after = reliability(others, position, fitted).ece;
    std::printf("  position %d: ECE %.4f at 1, %.4f at %.3f\n", position, before, after,
                fitted[static_cast<size_t>(position)]);
    EXPECT_LT(after, 0.02) << position;
    EXPECT_LT(after, before / 2) << position;
  }
}

TEST(Calibration, BinsAreCountedByHand) {
  // Logits of 0 mean one half: bin 7 of 15. A certain draft belongs to the last bin.
  const std::vector<double> plain(kWidth, 1.0);
  std::vector<DraftBlock> blocks = {{.logits = {0, 0, 0, 0, 0}, .accepted = 1, .known = 5},
                                    {.logits = {0, 0, 0, 0, 0}, .accepted = 0, .known = 5},
                                    {.logits = {0, 0, 0, 0, 0}, .accepted = 2, .known = 2},
                                    {.logits = {50, 0, 0, 0, 0}, .accepted = 1, .known = 1}};
  const Reliability first = reliability(blocks, 0, plain);
  EXPECT_EQ(first.blocks, 4);
  EXPECT_EQ(first.bins[7].blocks, 3);
  EXPECT_DOUBLE_EQ(first.bins[7].predicted, 0.5);
  EXPECT_DOUBLE_EQ(first.bins[7].observed, 2.0 / 3);
  EXPECT_EQ(first.bins[14].blocks, 1);
  EXPECT_NEAR(first.ece, (3 * (2.0 / 3 - 0.5) + 1e-6) / 4, 1e-9);
  // The second position: three blocks know it, the last one ended before it.
  EXPECT_EQ(reliability(blocks, 1, plain).blocks, 3);
  // The third: the block that ended while all was right does not know.
  EXPECT_EQ(reliability(blocks, 2, plain).blocks, 2);
}

TEST(Calibration, NamesAPositionWithoutObservations) {
  const std::vector<DraftBlock> blocks(10, {.logits = {0, 0, 0, 0, 0}, .accepted = 2, .known = 2});
  EXPECT_NO_THROW(fit_temperatures(blocks, 2));
  try {
    fit_temperatures(blocks, kWidth);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("position 3"), std::string::npos) << error.what();
  }
}

TEST(Calibration, EnvelopeIsTheSlowestAndNeverFalls) {
  // Six rows were measured twice; eight ran faster than six by luck.
  const std::vector<TimedStep> points = {{2, 1.0}, {6, 2.0}, {6, 3.0}, {8, 2.5}, {12, 5.0}};
  const std::vector<double> envelope = latency_envelope(points, 14);
  const std::vector<double> expected = {1, 1, 1, 1.5, 2, 2.5, 3, 3, 3, 3.5, 4, 4.5, 5, 5, 5};
  ASSERT_EQ(envelope.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_DOUBLE_EQ(envelope[i], expected[i]) << i;
}

}  // namespace
}  // namespace folio
