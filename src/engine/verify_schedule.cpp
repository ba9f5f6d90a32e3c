#include "engine/verify_schedule.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

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

double StepCosts::drafting_seconds(int64_t requests, int32_t width) const {
  if (requests == 0 || width == 0) return 0;
  FOLIO_CHECK(!draft_seconds.empty() && width > 0, width);
  return at_most_end(draft_seconds[std::min(static_cast<size_t>(width), draft_seconds.size()) - 1], requests);
}

double calibrated_confidence(double logit, double temperature) {
  static const double kMost = std::log((1 - 1e-6) / 1e-6);
  const double bounded = std::isnan(logit) ? -kMost : std::clamp(logit, -kMost, kMost);
  return 1 / (1 + std::exp(-bounded / temperature));
}

AcceptanceModel::AcceptanceModel(std::vector<double> temperatures)
    : temperatures_(std::move(temperatures)), records_(temperatures_.size()) {}

std::vector<double> AcceptanceModel::survivals(std::span<const float> logits) const {
  FOLIO_CHECK(logits.size() <= temperatures_.size(), logits.size());
  std::vector<double> products(logits.size());
  double product = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    product *= std::min(1.0, calibrated_confidence(logits[i], temperatures_[i]) * records_[i].correction());
    products[i] = product;
  }
  return products;
}

void AcceptanceModel::observe(std::span<const float> logits, int32_t verified, int32_t accepted) {
  for (size_t i = 0; i < logits.size(); ++i) {
    Record& record = records_[i];
    record.expected *= kMemory;
    record.accepted *= kMemory;
    // What comes behind a rejected draft is not known.
    const auto position = static_cast<int32_t>(i);
    if (position >= verified || position > accepted) continue;
    record.expected += calibrated_confidence(logits[i], temperatures_[i]);
    record.accepted += position < accepted ? 1 : 0;
  }
}

VerifyPlan plan_verification(std::span<const std::vector<double>> survivals, int32_t width, const StepCosts& costs) {
  const auto requests = static_cast<int64_t>(survivals.size());
  std::vector<Candidate> candidates;
  int64_t drafting = 0;
  for (size_t r = 0; r < survivals.size(); ++r) {
    const size_t drafts = std::min(survivals[r].size(), static_cast<size_t>(width));
    drafting += drafts > 0 ? 1 : 0;
    for (size_t i = 0; i < drafts; ++i) {
      candidates.push_back({survivals[r][i], static_cast<int32_t>(i), static_cast<int32_t>(r)});
    }
  }
  // Equal ones by position: a draft never comes before one that it stands on.
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return std::tuple(-a.survival, a.position, a.request) < std::tuple(-b.survival, b.position, b.request);
  });
  // Every step pays for a block, whatever it verifies of it.
  const double draft_seconds = costs.drafting_seconds(drafting, width);
  VerifyPlan plan{.lengths = std::vector<int32_t>(survivals.size()),
                  .tokens = static_cast<double>(requests),
                  .seconds = costs.forward_seconds(requests) + draft_seconds};
  // The best of all, not the first that is better than the next: where a few rows more are dear and many are not, as
  // while new experts are met, the first would be none at all. Any choice gives the same tokens.
  size_t admitted = 0;
  double tokens = plan.tokens;
  for (size_t m = 1; m <= candidates.size(); ++m) {
    tokens += candidates[m - 1].survival;
    const double seconds = costs.forward_seconds(requests + static_cast<int64_t>(m)) + draft_seconds;
    if (tokens * plan.seconds <= plan.tokens * seconds) continue;
    admitted = m;
    plan.tokens = tokens;
    plan.seconds = seconds;
  }
  for (size_t m = 0; m < admitted; ++m) ++plan.lengths[static_cast<size_t>(candidates[m].request)];
  return plan;
}

}  // namespace folio
