#include "server/token_policies.h"

#include <algorithm>

#include "base/error.h"

namespace folio {

bool AllowedIdsPolicy::mask(std::span<uint64_t> bits) {
  for (size_t word = 0; word < bits.size(); ++word) bits[word] &= word < bits_->size() ? (*bits_)[word] : 0;
  return true;
}

bool BadWordsPolicy::mask(std::span<uint64_t> bits) {
  bool cleared = false;
  for (const std::vector<int32_t>& sequence : *sequences_) {
    const size_t before = sequence.size() - 1;
    if (answer_.size() < before || !std::equal(sequence.begin(), sequence.end() - 1, answer_.end() - before)) continue;
    bits[static_cast<size_t>(sequence.back() / 64)] &= ~(uint64_t{1} << (sequence.back() % 64));
    cleared = true;
  }
  return cleared;
}

PolicyVerdict BadWordsPolicy::accept(int32_t id) {
  answer_.push_back(id);
  return PolicyVerdict::kContinue;
}

void BadWordsPolicy::rollback(int32_t count) {
  FOLIO_CHECK(count >= 0 && count <= std::ssize(answer_));
  answer_.resize(answer_.size() - static_cast<size_t>(count));
}

bool PolicyChain::mask(std::span<uint64_t> bits) {
  bool cleared = false;
  for (const auto& policy : policies_) {
    if (!policy->masks()) continue;
    // A policy expects to see all bits set; what the ones before have cleared stays so.
    std::vector<uint64_t> own(bits.size(), ~uint64_t{0});
    if (!policy->mask(own)) continue;
    cleared = true;
    for (size_t word = 0; word < bits.size(); ++word) bits[word] &= own[word];
  }
  return cleared;
}

bool PolicyChain::masks() const {
  return std::ranges::any_of(policies_, [](const auto& policy) { return policy->masks(); });
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
