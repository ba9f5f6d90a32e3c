#include "engine/verify_schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace folio {
namespace {

double at_most_end(const std::vector<double>& table, int64_t index) {
  FOLIO_CHECK(!table.empty() && index >= 0, index);
  return table[static_cast<size_t>(std::min(index, std::ssize(table) - 1))];
}

struct Candidate {
  double survival;
  int32_t position, request;
};

}  // namespace

double StepCosts::forward_seconds(int64_t rows) const { return 1 / at_most_end(steps_per_second, rows); }
double StepCosts::drafting_seconds(int64_t requests) const { return at_most_end(draft_seconds, requests); }

double calibrated_confidence(double logit, double temperature) {
  static const double kMost = std::log((1 - 1e-6) / 1e-6);
  return 1 / (1 + std::exp(-std::clamp(logit, -kMost, kMost) / temperature));
}

std::vector<double> survivals(std::span<const float> logits, std::span<const double> temperatures) {
  FOLIO_CHECK(logits.size() <= temperatures.size(), logits.size());
  std::vector<double> products(logits.size());
  double product = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    product *= calibrated_confidence(logits[i], temperatures[i]);
    products[i] = product;
  }
  return products;
}

VerifyPlan plan_verification(std::span<const std::vector<double>> survivals, const StepCosts& costs) {
  const auto requests = static_cast<int64_t>(survivals.size());
  std::vector<Candidate> candidates;
  for (size_t r = 0; r < survivals.size(); ++r) {
    for (size_t i = 0; i < survivals[r].size(); ++i) {
      candidates.push_back({survivals[r][i], static_cast<int32_t>(i), static_cast<int32_t>(r)});
    }
  }
  // Equal ones by position: a draft never comes before one that it stands on.
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.survival != b.survival ? a.survival > b.survival : a.position < b.position;
  });
  const double plain_seconds = costs.forward_seconds(requests);
  VerifyPlan plan{.lengths = std::vector<int32_t>(survivals.size()),
                  .tokens = static_cast<double>(requests),
                  .seconds = plain_seconds};
  // The best of all, not the first that is better than the next: where a few rows more are dear and many are not, as
  // while new experts are met, the first would be none at all. Any choice gives the same tokens.
  size_t admitted = 0;
  double tokens = plan.tokens;
  for (size_t m = 1; m <= candidates.size(); ++m) {
    tokens += candidates[m - 1].survival;
    const double seconds = costs.forward_seconds(requests + static_cast<int64_t>(m));
    if (tokens * plan.seconds <= plan.tokens * seconds) continue;
    admitted = m;
    plan.tokens = tokens;
    plan.seconds = seconds;
  }
  for (size_t m = 0; m < admitted; ++m) ++plan.lengths[static_cast<size_t>(candidates[m].request)];
  if (admitted > 0) {
    plan.gain_seconds = plan.tokens * plain_seconds / static_cast<double>(requests) - plan.seconds;
  }
  return plan;
}

void DraftController::start() {
  skipping_ = false;
  observed_ = 0;
  std::ranges::fill(balance_, 0.0);
}

void DraftController::observe(double gain_seconds, double draft_seconds, double plain_seconds) {
  const double balance = gain_seconds - draft_seconds;
  if (skipping_ && balance < 0) return;
  if (skipping_) start();
  balance_[observed_++ % kPatience] = balance;
  const double sum = std::reduce(std::begin(balance_), std::end(balance_));
  const bool too_long = observed_ >= kPatience && sum < 0;
  if (!too_long && sum >= -kPatience * kDearDraft * plain_seconds) return;
  skipping_ = true;
  skipped_ = 0;
  const double dearness = std::max(1.0, draft_seconds / (kDearDraft * plain_seconds));
  interval_ = static_cast<int64_t>(std::ceil(kTrialInterval * dearness));
}

bool DraftController::next_step_drafts() {
  if (!skipping_) return true;
  skipped_ = (skipped_ + 1) % interval_;
  return skipped_ == 0;
}

}  // namespace folio
