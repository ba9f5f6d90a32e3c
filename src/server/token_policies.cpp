#include "server/token_policies.h"

#include <algorithm>

namespace folio {

bool AllowedIdsPolicy::mask(std::span<uint64_t> bits) {
  for (size_t word = 0; word < bits.size(); ++word) bits[word] &= word < bits_->size() ? (*bits_)[word] : 0;
  return true;
}

bool PolicyChain::mask(std::span<uint64_t> bits) {
  bool cleared = false;
  for (const auto& policy : policies_) {
    // A policy expects to see all bits set; what the ones before have cleared stays so.
    std::vector<uint64_t> own(bits.size(), ~uint64_t{0});
    if (!policy->mask(own)) continue;
    cleared = true;
    for (size_t word = 0; word < bits.size(); ++word) bits[word] &= own[word];
  }
  return cleared;
}

PolicyVerdict PolicyChain::accept(int32_t id) {
  PolicyVerdict verdict = PolicyVerdict::kContinue;
  for (const auto& policy : policies_) {
    if (policy->accept(id) == PolicyVerdict::kStop) verdict = PolicyVerdict::kStop;
  }
  return verdict;
}

void PolicyChain::rollback(int32_t count) {
  for (const auto& policy : policies_) policy->rollback(count);
}

std::shared_ptr<TokenPolicy> chain_policies(std::vector<std::shared_ptr<TokenPolicy>> policies) {
  std::erase(policies, nullptr);
  if (policies.empty()) return nullptr;
  if (policies.size() == 1) return std::move(policies.front());
  return std::make_shared<PolicyChain>(std::move(policies));
}

std::shared_ptr<const std::vector<uint64_t>> id_bits(const std::vector<int32_t>& ids, int64_t vocab) {
  auto bits = std::make_shared<std::vector<uint64_t>>(static_cast<size_t>((vocab + 63) / 64));
  for (const int32_t id : ids) (*bits)[static_cast<size_t>(id / 64)] |= uint64_t{1} << (id % 64);
  return bits;
}

}  // namespace folio
