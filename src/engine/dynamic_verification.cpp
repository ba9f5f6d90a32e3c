#include "engine/dynamic_verification.h"

#include <algorithm>
#include <utility>

namespace folio {

DynamicVerification::DynamicVerification(std::shared_ptr<const CalibrationProfile> profile)
    : profile_(std::move(profile)), acceptance_(profile_->temperatures), controller_(profile_->draft_width) {}

std::vector<int32_t> DynamicVerification::plan(std::span<const std::span<const float>> confidences, int32_t drafted) {
  std::vector<std::vector<double>> outlook;
  for (const auto& block : confidences) outlook.push_back(acceptance_.survivals(block));
  const StepCosts& costs = profile_->costs;
  const auto requests = static_cast<double>(outlook.size());
  const double plain_seconds = costs.forward_seconds(std::ssize(confidences));
  VerifyPlan plan;
  std::vector<StepValue> values;
  for (int32_t width = 1; width <= drafted; ++width) {
    plan = plan_verification(outlook, width, costs);
    values.push_back({.tokens = plan.tokens / requests, .seconds = plan.seconds / plain_seconds});
  }
  controller_.observe(values);
  return plan.lengths;  // of the blocks as they are
}

void DynamicVerification::judge(std::span<const float> confidences, int32_t verified, int32_t accepted) {
  acceptance_.observe(confidences, verified, accepted);
}

}  // namespace folio
