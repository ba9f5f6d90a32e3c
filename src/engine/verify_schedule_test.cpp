#include "engine/verify_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace folio {
namespace {

using Survivals = std::vector<std::vector<double>>;

// seconds(rows) = fixed + slope * rows.
StepCosts linear_costs(int64_t rows, double fixed, double slope, double draft = 0.1) {
  StepCosts costs{.steps_per_second = {}, .draft_seconds = {draft, draft}};
  for (int64_t row = 0; row <= rows; ++row) costs.steps_per_second.push_back(1 / (fixed + slope * double(row)));
  return costs;
}

TEST(VerifySchedule, ConfidencesAreScaledAndBounded) {
  EXPECT_DOUBLE_EQ(calibrated_confidence(0, 2), 0.5);
  EXPECT_NEAR(calibrated_confidence(2, 1), 0.880797, 1e-6);
  EXPECT_NEAR(calibrated_confidence(2, 2), 0.731059, 1e-6);
  EXPECT_NEAR(calibrated_confidence(1000, 1), 1 - 1e-6, 1e-12);
  EXPECT_NEAR(calibrated_confidence(-INFINITY, 1), 1e-6, 1e-12);
}

TEST(VerifySchedule, SurvivalIsTheRunningProduct) {
  const std::vector<float> logits = {0, 0, 2};
  const std::vector<double> temperatures = {1, 1, 2, 1, 1};
  const std::vector<double> found = survivals(logits, temperatures);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_DOUBLE_EQ(found[0], 0.5);
  EXPECT_DOUBLE_EQ(found[1], 0.25);
  EXPECT_NEAR(found[2], 0.25 * 0.731059, 1e-6);
  EXPECT_TRUE(survivals({}, temperatures).empty());
}

TEST(VerifySchedule, MostProbableDraftsFirst) {
  // A row costs a third of a step: a draft pays from about a third of what a step gives.
  const Survivals outlook = {{0.9, 0.8, 0.1}, {0.2, 0.1, 0.05}, {}, {0.95, 0.05, 0.01}};
  const VerifyPlan plan = plan_verification(outlook, linear_costs(24, 6, 1));
  EXPECT_EQ(plan.lengths, (std::vector<int32_t>{2, 0, 0, 1}));
  EXPECT_DOUBLE_EQ(plan.tokens, 4 + 0.9 + 0.8 + 0.95);
  EXPECT_DOUBLE_EQ(plan.seconds, 6 + 7);
  EXPECT_DOUBLE_EQ(plan.gain_seconds, plan.tokens * 10 / 4 - 13);
}

TEST(VerifySchedule, FreeRowsTakeAllAndDearRowsNone) {
  const Survivals outlook = {{0.5, 0.25, 0.125}, {0.5, 0.01}};
  EXPECT_EQ(plan_verification(outlook, linear_costs(24, 1, 0)).lengths, (std::vector<int32_t>{3, 2}));
  const VerifyPlan none = plan_verification(outlook, linear_costs(24, 0.01, 1));
  EXPECT_EQ(none.lengths, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(none.gain_seconds, 0);
}

TEST(VerifySchedule, EqualSurvivalsAreAdmittedInTheirOrder) {
  // Probabilities of 1: nothing but the position tells the drafts of a request apart.
  const Survivals outlook = {{1, 1, 1}, {1, 1, 1}};
  StepCosts costs = linear_costs(24, 1, 0);
  for (size_t row = 4; row < costs.steps_per_second.size(); ++row) costs.steps_per_second[row] = 0.01;
  EXPECT_EQ(plan_verification(outlook, costs).lengths, (std::vector<int32_t>{1, 0})) << "one row is left";
}

// The rule of spec runtime 7.7 stops at the first draft that does not pay by itself. Where the second row is dear and
// further ones are not, which is what experts do, it never starts.
TEST(VerifySchedule, SeesPastARiseInCosts) {
  const StepCosts costs{.steps_per_second = {1, 1, 1 / 1.9, 1 / 2.0, 1 / 2.05, 1 / 2.1, 1 / 2.1},
                        .draft_seconds = {0.1}};
  const VerifyPlan plan = plan_verification(Survivals{{0.85, 0.8, 0.75, 0.7, 0.65}}, costs);
  EXPECT_EQ(plan.lengths, (std::vector<int32_t>{5}));
  EXPECT_GT(plan.tokens / plan.seconds, 2.2);
}

TEST(VerifySchedule, CostsBeyondTheTableAreThoseAtItsEnd) {
  const StepCosts costs = linear_costs(3, 1, 1);
  EXPECT_DOUBLE_EQ(costs.forward_seconds(2), 3);
  EXPECT_DOUBLE_EQ(costs.forward_seconds(3), 4);
  EXPECT_DOUBLE_EQ(costs.forward_seconds(1000), 4);
  EXPECT_DOUBLE_EQ(costs.drafting_seconds(1000), 0.1);
}

// Against the choice that no rule can beat: every admissible one tried.
TEST(VerifySchedule, NoOtherChoiceIsFaster) {
  for (uint64_t trial = 0; trial < 300; ++trial) {
    Survivals outlook(2);
    for (size_t r = 0; r < 2; ++r) {
      double survival = 1;
      for (uint64_t i = 0; i < 4; ++i) outlook[r].push_back(survival *= random_uniform(trial, r, i));
    }
    StepCosts costs{.steps_per_second = {}, .draft_seconds = {1}};
    double seconds = 1;
    for (uint64_t row = 0; row <= 10; ++row) {
      costs.steps_per_second.push_back(1 / seconds);
      seconds += 0.5 * random_uniform(trial, 9, row);
    }
    const VerifyPlan plan = plan_verification(outlook, costs);
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

// Requests whose drafts are accepted with the confidences that were announced, on a synthetic machine: a forward of r
// rows takes 20 + max(r, 8) + 0.25 r ms and the draft head 2 ms. Returns tokens a second over many steps; `width` < 0:
// dynamic, else so many drafts of each request are verified.
double simulated_rate(int64_t requests, int32_t width) {
  StepCosts costs{.steps_per_second = {}, .draft_seconds = {2e-3}};
  for (int64_t row = 0; row <= requests * 6; ++row) {
    costs.steps_per_second.push_back(1e3 / (20 + std::max<double>(double(row), 8) + 0.25 * double(row)));
  }
  const std::vector<double> temperatures(5, 1.0);
  double seconds = 0, tokens = 0;
  for (uint64_t step = 0; step < 4000; ++step) {
    Survivals outlook;
    std::vector<int32_t> would_accept;
    for (uint64_t r = 0; r < static_cast<uint64_t>(requests); ++r) {
      // Texts differ: half of them are easy, and each has easy and hard places.
      const double mood = (r % 2 == 0 ? 2.0 : -0.5) + 1.5 * random_normal(step, r, 7);
      std::vector<float> logits;
      for (uint64_t i = 0; i < 5; ++i) logits.push_back(static_cast<float>(mood - 0.3 * double(i)));
      outlook.push_back(survivals(logits, temperatures));
      int32_t accepted = 0;
      while (accepted < 5 && random_uniform(step, r, 100 + static_cast<uint64_t>(accepted)) <
                                 calibrated_confidence(logits[static_cast<size_t>(accepted)], 1)) {
        ++accepted;
      }
      would_accept.push_back(accepted);
    }
    std::vector<int32_t> lengths(outlook.size(), std::max(width, 0));
    if (width < 0) lengths = plan_verification(outlook, costs).lengths;
    int64_t rows = requests;
    for (size_t r = 0; r < lengths.size(); ++r) {
      rows += lengths[r];
      tokens += 1 + std::min(lengths[r], would_accept[r]);
    }
    seconds += costs.forward_seconds(rows) + (width == 0 ? 0 : costs.drafting_seconds(requests));
  }
  return tokens / seconds;
}

TEST(VerifySchedule, BeatsEveryFixedWidthOnASyntheticMachine) {
  for (const int64_t requests : {1, 4, 8, 16, 32}) {
    double fixed = 0;
    int32_t best = 0;
    for (int32_t width = 0; width <= 5; ++width) {
      const double rate = simulated_rate(requests, width);
      if (rate > fixed) best = width;
      fixed = std::max(fixed, rate);
    }
    const double dynamic = simulated_rate(requests, -1);
    std::printf("  %2lld requests: dynamic %.1f tok/s, best fixed width %d: %.1f tok/s, without drafts %.1f tok/s\n",
                static_cast<long long>(requests), dynamic, best, fixed, simulated_rate(requests, 0));
    // One request below the knee has every row for nothing: there all widths verify all.
    EXPECT_GE(dynamic, fixed * (requests == 1 ? 0.999 : 1.02)) << requests;
  }
}

TEST(DraftController, StopsAfterAWhileAndGoesOnWhenATrialPays) {
  DraftController controller;
  for (int i = 0; i < DraftController::kPatience; ++i) {
    EXPECT_FALSE(controller.skipping()) << i;
    EXPECT_TRUE(controller.next_step_drafts());
    controller.observe(0.1, 0.3, 1);
  }
  EXPECT_TRUE(controller.skipping());
  // One step in 32 drafts; the trials do not pay yet.
  int drafted = 0;
  for (int step = 0; step < 10 * DraftController::kTrialInterval; ++step) {
    if (!controller.next_step_drafts()) continue;
    ++drafted;
    controller.observe(0.29, 0.3, 1);
  }
  EXPECT_EQ(drafted, 10);
  EXPECT_TRUE(controller.skipping());
  while (!controller.next_step_drafts()) {
  }
  controller.observe(0.5, 0.3, 1);
  EXPECT_FALSE(controller.skipping());
  EXPECT_TRUE(controller.next_step_drafts());
}

TEST(DraftController, AFewBadStepsDoNotStopIt) {
  DraftController controller;
  for (int i = 0; i < 1000; ++i) {
    controller.observe(i % 4 == 0 ? 1.0 : 0.2, 0.3, 1);  // 0.4 on average
    EXPECT_FALSE(controller.skipping()) << i;
  }
}

// What drafting in vain costs stays below 3 % of a thousand steps however dear the draft head is.
TEST(DraftController, ADearDraftHeadIsDroppedSooner) {
  for (const double dear : {0.1, 0.5, 1.0, 2.0, 3.0, 10.0}) {
    DraftController controller;
    double lost = 0;
    for (int step = 0; step < 1000; ++step) {
      if (!controller.next_step_drafts()) continue;
      lost += dear;
      controller.observe(0, dear, 1);
    }
    EXPECT_LT(lost, 30) << dear;
  }
}

}  // namespace
}  // namespace folio
