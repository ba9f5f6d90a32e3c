// The policy as a whole on synthetic machines: drafts that are accepted by chance, times by tables.
#include "engine/dynamic_verification.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "base/rng.h"

namespace folio {
namespace {

constexpr int32_t kWidth = 5;
constexpr int32_t kDynamic = -1;

struct Machine {
  std::function<double(double)> forward;  // seconds by rows
  double draft = 0, each_draft = 0;       // seconds of the draft head: of a block, and for every draft of it
};

// Half of the texts are easy, and each has easy and hard places; harder ones by less `ease`. What is accepted is as
// probable as the confidences say, to the power of `boast`: with 2 they boast.
struct Texts {
  double ease = 0;
  double boast = 1;

  std::vector<float> confidences(uint64_t step, uint64_t request) const {
    const double mood = ease + (request % 2 == 0 ? 2.0 : -0.5) + 1.5 * random_normal(step, request, 7);
    std::vector<float> logits;
    for (int i = 0; i < kWidth; ++i) logits.push_back(static_cast<float>(mood - 0.3 * i));
    return logits;
  }
  int32_t accepted(uint64_t step, uint64_t request, const std::vector<float>& logits) const {
    int32_t count = 0;
    while (count < kWidth && random_uniform(step, request, 100 + static_cast<uint64_t>(count)) <
                                 std::pow(calibrated_confidence(logits[static_cast<size_t>(count)], 1), boast)) {
      ++count;
    }
    return count;
  }
};

std::shared_ptr<const CalibrationProfile> profile_of(const Machine& machine, int32_t requests) {
  auto profile = std::make_shared<CalibrationProfile>();
  profile->draft_width = kWidth;
  profile->max_num_seqs = requests;
  profile->temperatures.assign(kWidth, 1.0);
  for (int row = 0; row <= requests * (kWidth + 1); ++row) {
    profile->costs.steps_per_second.push_back(1 / machine.forward(row));
  }
  for (int width = 1; width <= kWidth; ++width) {
    const double seconds = machine.draft + machine.each_draft * width;
    profile->costs.draft_seconds.emplace_back(static_cast<size_t>(requests) + 1, seconds);
  }
  return profile;
}

// Tokens a second over so many steps, of which each draws its drafts anew. `width` kDynamic: by the policy, else blocks
// of so many drafts, all of them verified.
double simulated_rate(const Machine& machine, const Texts& texts, int32_t requests, int32_t width, int64_t steps) {
  const auto profile = profile_of(machine, requests);
  DynamicVerification policy(profile);
  double seconds = 0, tokens = 0;
  for (uint64_t step = 0; step < static_cast<uint64_t>(steps); ++step) {
    const int32_t drafted = width == kDynamic ? policy.next_width() : width;
    std::vector<std::vector<float>> logits;
    std::vector<std::span<const float>> blocks;
    for (uint64_t r = 0; r < static_cast<uint64_t>(requests); ++r) {
      logits.push_back(texts.confidences(step, r));
      blocks.push_back(std::span<const float>(logits.back()).first(static_cast<size_t>(drafted)));
    }
    std::vector<int32_t> lengths(blocks.size(), drafted);
    if (width == kDynamic && drafted > 0) lengths = policy.plan(blocks, drafted);
    int64_t rows = requests;
    for (size_t r = 0; r < lengths.size(); ++r) {
      const int32_t accepted = std::min(lengths[r], texts.accepted(step, r, logits[r]));
      if (drafted > 0) policy.judge(blocks[r], lengths[r], accepted);
      rows += lengths[r];
      tokens += 1 + accepted;
    }
    seconds += machine.forward(static_cast<double>(rows)) + profile->costs.drafting_seconds(requests, drafted);
  }
  return tokens / seconds;
}

TEST(DynamicVerification, BeatsEveryFixedWidthOnASyntheticMachine) {
  const Machine machine{.forward = [](double rows) { return 1e-3 * (20 + std::max<double>(rows, 8) + 0.25 * rows); },
                        .draft = 2e-3};
  for (const int32_t requests : {1, 4, 8, 16, 32}) {
    double rates[kWidth + 1];
    for (int32_t width = 0; width <= kWidth; ++width) rates[width] = simulated_rate(machine, {}, requests, width, 4000);
    const double* best = std::ranges::max_element(rates);
    const double dynamic = simulated_rate(machine, {}, requests, kDynamic, 4000);
    std::printf("  %2d requests: dynamic %.1f tok/s, best fixed width %d: %.1f tok/s, without drafts %.1f tok/s\n",
                requests, dynamic, static_cast<int>(best - rates), *best, rates[0]);
    // One request below the knee has every row for nothing: there all widths verify all.
    EXPECT_GE(dynamic, *best * (requests == 1 ? 0.999 : 1.02)) << requests;
  }
}

// Over a thousand steps, from the first on.
TEST(DynamicVerification, NeverMuchSlowerThanNoSpeculation) {
  const std::pair<const char*, std::function<double(double)>> curves[] = {
      {"flat", [](double) { return 1.0; }},
      {"a line", [](double rows) { return 1 + 0.1 * rows; }},
      {"rows alone", [](double rows) { return 0.01 + rows; }},
      {"experts that are met", [](double rows) { return 0.3 + 20 * (1 - std::pow(0.95, rows)) + 0.02 * rows; }},
      {"a knee", [](double rows) { return 20 + std::max(rows, 24.0) + 0.25 * rows; }},
  };
  double worst = 10;
  for (const auto& [name, forward] : curves) {
    for (const int32_t requests : {1, 8}) {
      for (const double share : {0.02, 0.1, 0.5, 1.0, 3.0}) {  // of a plain step that the widest block takes
        for (const Texts& texts : {Texts{}, Texts{.ease = -3}, Texts{.ease = -1, .boast = 2}, Texts{.boast = 4}}) {
          const double draft = share * forward(requests);
          const Machine machine{.forward = forward, .draft = 0.5 * draft, .each_draft = 0.1 * draft};
          const double plain = simulated_rate(machine, texts, requests, 0, 1000);
          const double ratio = simulated_rate(machine, texts, requests, kDynamic, 1000) / plain;
          EXPECT_GT(ratio, 0.97) << name << ", " << requests << " requests, draft head " << share << " of a step, ease "
                                 << texts.ease << ", boast " << texts.boast;
          worst = std::min(worst, ratio);
        }
      }
    }
  }
  std::printf("  the worst of all: %.4f of the speed without drafts\n", worst);
}

// Requests that end soon have no use for what a block has beyond their limit, and it has its price all the same.
TEST(DynamicVerification, ChargesForDraftsThatNobodyCanUse) {
  const Machine machine{.forward = [](double rows) { return 1 + 0.1 * rows; }, .draft = 0.25, .each_draft = 0.05};
  const auto profile = profile_of(machine, 1);
  DynamicVerification policy(profile);
  double seconds = 0;
  for (int step = 0; step < 1000; ++step) {
    const int32_t drafted = policy.next_width();
    const float hopeless[] = {-20, -20, -20, -20, -20};
    const std::span<const float> usable[] = {std::span(hopeless).first(static_cast<size_t>(std::min(drafted, 2)))};
    const int32_t verified = drafted > 0 ? policy.plan(usable, drafted).front() : 0;
    if (drafted > 0) policy.judge(usable[0], verified, 0);
    seconds += machine.forward(1 + verified) + profile->costs.drafting_seconds(1, drafted);
  }
  EXPECT_LT(seconds / machine.forward(1) - 1000, DraftController::kCredit + 1000 * DraftController::kRefill);
}

}  // namespace
}  // namespace folio
