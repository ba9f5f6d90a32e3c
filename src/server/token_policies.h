// Policies of requests beside those of chats.
#pragma once

#include <memory>
#include <vector>

#include "tokenizer/token_policy.h"

namespace folio {

// Lets only the given ids be drawn, and the end of sentence if it is among them.
class AllowedIdsPolicy final : public TokenPolicy {
 public:
  explicit AllowedIdsPolicy(std::shared_ptr<const std::vector<uint64_t>> bits) : bits_(std::move(bits)) {}
  bool mask(std::span<uint64_t> bits) override;
  PolicyVerdict accept(int32_t) override { return PolicyVerdict::kContinue; }
  void rollback(int32_t) override {}

 private:
  std::shared_ptr<const std::vector<uint64_t>> bits_;  // bit i is id i
};

// Keeps the last token of each of some sequences from being drawn where the answer's last tokens are those before it.
class BadWordsPolicy final : public TokenPolicy {
 public:
  // None of the sequences is empty.
  explicit BadWordsPolicy(std::shared_ptr<const std::vector<std::vector<int32_t>>> sequences)
      : sequences_(std::move(sequences)) {}
  bool mask(std::span<uint64_t> bits) override;
  PolicyVerdict accept(int32_t id) override;
  void rollback(int32_t count) override;

 private:
  std::shared_ptr<const std::vector<std::vector<int32_t>>> sequences_;
  std::vector<int32_t> answer_;
};

// Several policies as one: what one of them forbids is forbidden, and the first that stops stops.
class PolicyChain final : public TokenPolicy {
 public:
  explicit PolicyChain(std::vector<std::shared_ptr<TokenPolicy>> policies) : policies_(std::move(policies)) {}
  bool mask(std::span<uint64_t> bits) override;
  bool masks() const override;
  PolicyVerdict accept(int32_t id) override;
  void rollback(int32_t count) override;

 private:
  std::vector<std::shared_ptr<TokenPolicy>> policies_;
};

// One policy out of any number: null for none.
std::shared_ptr<TokenPolicy> chain_policies(std::vector<std::shared_ptr<TokenPolicy>> policies);

// Bit i for each of `ids`, for a vocabulary of `vocab` ids.
std::shared_ptr<const std::vector<uint64_t>> id_bits(const std::vector<int32_t>& ids, int64_t vocab);

}  // namespace folio
