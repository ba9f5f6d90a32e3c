#include "engine/verify_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace folio {
namespace {

using Survivals = std::vector<std::vector<double>>;

constexpr int32_t kWidth = 5;

// seconds(rows) = fixed + slope * rows, and the draft head always `draft`.
StepCosts linear_costs(int64_t rows, double fixed, double slope, double draft = 0) {
  StepCosts costs{.steps_per_second = {}, .draft_seconds = {{0, draft}}};
  for (int64_t row = 0; row <= rows; ++row) costs.steps_per_second.push_back(1 / (fixed + slope * double(row)));
  return costs;
}

TEST(VerifySchedule, ConfidencesAreScaledAndBounded) {
  EXPECT_DOUBLE_EQ(calibrated_confidence(0, 2), 0.5);
  EXPECT_NEAR(calibrated_confidence(2, 1), 0.880797, 1e-6);
  EXPECT_NEAR(calibrated_confidence(2, 2), 0.731059, 1e-6);
  EXPECT_NEAR(calibrated_confidence(1000, 1), 1 - 1e-6, 1e-12);
  EXPECT_NEAR(calibrated_confidence(-INFINITY, 1), 1e-6, 1e-12);
  EXPECT_NEAR(calibrated_confidence(NAN, 1), 1e-6, 1e-12);
}

TEST(AcceptanceModel, SurvivalIsTheRunningProduct) {
  const std::vector<float> logits = {0, 0, 2};
  const AcceptanceModel model({1, 1, 2, 1, 1});
  const std::vector<double> found = model.survivals(logits);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_DOUBLE_EQ(found[0], 0.5);
  EXPECT_DOUBLE_EQ(found[1], 0.25);
  EXPECT_NEAR(found[2], 0.25 * 0.731059, 1e-6);
  EXPECT_TRUE(model.survivals({}).empty());
}

// Confidences of 0.88, 0.5 and 0.5, of which the first comes true half as often.
TEST(AcceptanceModel, FollowsWhatBecomesOfDrafts) {
  const std::vector<float> logits = {2, 0, 0};
  AcceptanceModel model({1, 1, 1});
  for (uint64_t block = 0; block < 2000; ++block) {
    int32_t accepted = 0;
    while (accepted < 2 && random_uniform(1, block, static_cast<uint64_t>(accepted)) < (accepted == 0 ? 0.44 : 0.5)) {
      ++accepted;
    }
    model.observe(logits, 2, accepted);
  }
  std::vector<double> found = model.survivals(logits);
  EXPECT_NEAR(found[0], 0.44, 0.06);
  EXPECT_NEAR(found[1], 0.22, 0.05);
  EXPECT_DOUBLE_EQ(found[2], found[1] * 0.5) << "the third was never verified";
  // Blocks that nobody verifies: the verdict fades, else nobody ever would.
  for (int block = 0; block < 2000; ++block) model.observe(logits, 0, 0);
  EXPECT_NEAR(model.survivals(logits)[0], 0.88, 0.01);
}

TEST(AcceptanceModel, NeverSurerThanSure) {
  AcceptanceModel model({1, 1});
  const std::vector<float> logits = {0, 0};
  for (int block = 0; block < 1000; ++block) model.observe(logits, 2, 2);
  EXPECT_LE(model.survivals(logits)[0], 1);
  EXPECT_GT(model.survivals(logits)[1], 0.8);
}

TEST(VerifySchedule, MostProbableDraftsFirst) {
  // A row costs a third of a step: a draft pays from about a third of what a step gives.
  const Survivals outlook = {{0.9, 0.8, 0.1}, {0.2, 0.1, 0.05}, {}, {0.95, 0.05, 0.01}};
  const VerifyPlan plan = plan_verification(outlook, kWidth, linear_costs(24, 6, 1));
  EXPECT_EQ(plan.lengths, (std::vector<int32_t>{2, 0, 0, 1}));
  EXPECT_DOUBLE_EQ(plan.tokens, 4 + 0.9 + 0.8 + 0.95);
  EXPECT_DOUBLE_EQ(plan.seconds, 6 + 7);
}

TEST(VerifySchedule, FreeRowsTakeAllAndDearRowsNone) {
  const Survivals outlook = {{0.5, 0.25, 0.125}, {0.5, 0.01}};
  EXPECT_EQ(plan_verification(outlook, kWidth, linear_costs(24, 1, 0)).lengths, (std::vector<int32_t>{3, 2}));
  const VerifyPlan none = plan_verification(outlook, kWidth, linear_costs(24, 0.01, 1));
  EXPECT_EQ(none.lengths, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(none.tokens, 2);
}

TEST(VerifySchedule, EqualSurvivalsAreAdmittedInTheirOrder) {
  // Probabilities of 1: nothing but the position tells the drafts of a request apart.
  const Survivals outlook = {{1, 1, 1}, {1, 1, 1}};
  StepCosts costs = linear_costs(24, 1, 0);
  for (size_t row = 4; row < costs.steps_per_second.size(); ++row) costs.steps_per_second[row] = 0.01;
  EXPECT_EQ(plan_verification(outlook, kWidth, costs).lengths, (std::vector<int32_t>{1, 0})) << "one row is left";
}

// The rule of spec runtime 7.7 stops at the first draft that does not pay by itself. Where the second row is dear and
// further ones are not, which is what experts do, it never starts.
TEST(VerifySchedule, SeesPastARiseInCosts) {
  const StepCosts costs{.steps_per_second = {1, 1, 1 / 1.9, 1 / 2.0, 1 / 2.05, 1 / 2.1, 1 / 2.1},
                        .draft_seconds = {{0}}};
  const VerifyPlan plan = plan_verification(Survivals{{0.85, 0.8, 0.75, 0.7, 0.65}}, kWidth, costs);
  EXPECT_EQ(plan.lengths, (std::vector<int32_t>{5}));
  EXPECT_GT(plan.tokens / plan.seconds, 2.2);
}

TEST(VerifySchedule, CostsBeyondTheTableAreThoseAtItsEnd) {
  const StepCosts costs = linear_costs(3, 1, 1, 0.1);
  EXPECT_DOUBLE_EQ(costs.forward_seconds(2), 3);
  EXPECT_DOUBLE_EQ(costs.forward_seconds(3), 4);
  EXPECT_DOUBLE_EQ(costs.forward_seconds(1000), 4);
  EXPECT_DOUBLE_EQ(costs.drafting_seconds(1000, 1), 0.1);
  EXPECT_DOUBLE_EQ(costs.drafting_seconds(1000, 5), 0.1);
  EXPECT_DOUBLE_EQ(costs.drafting_seconds(1000, 0), 0);
}

TEST(VerifySchedule, NarrowerBlocksHaveFewerDraftsAndCostLess) {
  StepCosts costs = linear_costs(24, 1, 0);
  costs.draft_seconds = {{0, 0.1, 0.2}, {0, 0.3, 0.4}};
  const Survivals outlook = {{0.5, 0.25, 0.125}, {0.5}, {}};
  const VerifyPlan plan = plan_verification(outlook, 1, costs);
  EXPECT_EQ(plan.lengths, (std::vector<int32_t>{1, 1, 0}));
  EXPECT_DOUBLE_EQ(plan.seconds, 1 + 0.2);
  EXPECT_DOUBLE_EQ(plan_verification(outlook, 2, costs).seconds, 1 + 0.4);
}

// A block has its price whether or not its drafts are verified: where it is dear more of them pay.
TEST(VerifySchedule, DearBlocksAreVerifiedFurther) {
  const Survivals outlook = {{0.9, 0.6, 0.4, 0.3, 0.2}};
  EXPECT_EQ(plan_verification(outlook, kWidth, linear_costs(6, 1, 0.5)).lengths[0], 2);
  EXPECT_EQ(plan_verification(outlook, kWidth, linear_costs(6, 1, 0.5, 3)).lengths[0], 4);
}

// Against the choice that no rule can beat: every admissible one tried.
TEST(VerifySchedule, NoOtherChoiceIsFaster) {
  for (uint64_t trial = 0; trial < 300; ++trial) {
    Survivals outlook(2);
    for (size_t r = 0; r < 2; ++r) {
      double survival = 1;
      for (uint64_t i = 0; i < 4; ++i) outlook[r].push_back(survival *= random_uniform(trial, r, i));
    }
    StepCosts costs{.steps_per_second = {}, .draft_seconds = {{0}}};
    double seconds = 1;
    for (uint64_t row = 0; row <= 10; ++row) {
      costs.steps_per_second.push_back(1 / seconds);
      seconds += 0.5 * random_uniform(trial, 9, row);
    }
    const VerifyPlan plan = plan_verification(outlook, kWidth, costs);
    double best = 0;
    for (size_t a = 0; a <= 4; ++a) {
      for (size_t b = 0; b <= 4; ++b) {
        double tokens = 2;
        for (size_t i = 0; i < a; ++i) tokens += outlook[0][i];
        for (size_t i = 0; i < b; ++i) tokens += outlook[1][i];
        best = std::max(best, tokens / costs.forward_seconds(static_cast<int64_t>(2 + a + b)));
      }
    }
    EXPECT_NEAR(plan.tokens / plan.seconds, best, 1e-9 * best) << trial;
  }
}

}  // namespace
}  // namespace folio
