// How a chat answer acts on the tokens of its request: stop strings, the end of the calls, thinking, a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/answer_reader.h"
#include "tokenizer/token_policy.h"

namespace folio {

struct ChatPolicyOptions {
  ParserOptions parser;
  int64_t thinking_budget = -1;               // tokens of reasoning after which </think> is forced; -1: no limit
  std::unique_ptr<TokenPolicy> grammar = {};  // what the text after the reasoning must obey; may be null
};

// Ends a request with the token that completes a stop string in its content, or that closes its block of calls, or
// where the grammar says so. The grammar sees the tokens behind the one that ended the reasoning, each once, and masks
// nothing before.
class ChatPolicy final : public TokenPolicy {
 public:
  // `tokenizer` must outlive it. Throws Error(kInvalidArgument) when a stop string is empty.
  ChatPolicy(const Tokenizer& tokenizer, ChatPolicyOptions options);

  bool mask(std::span<uint64_t> bits) override;
  PolicyVerdict accept(int32_t id) override;
  // Costs as much as the tokens since the last kept state, at most 2 * kKeepEvery, where no more are forgotten.
  void rollback(int32_t count) override;

 private:
  static constexpr int64_t kKeepEvery = 64;  // tokens between kept states

  struct Kept {
    int64_t count = 0;  // accepted tokens
    AnswerReader reader;
  };

  void read(int32_t id);

  std::optional<int32_t> end_think_;       // </think>
  std::vector<int32_t> not_in_reasoning_;  // ids that a grammar forbids before it is armed
  int64_t thinking_budget_;
  std::unique_ptr<TokenPolicy> grammar_;
  std::vector<int32_t> ids_;  // accepted
  int64_t armed_at_ = -1;     // tokens before the grammar's first; -1: still reasoning
  AnswerReader reader_;
  std::vector<Kept> kept_;  // ascending: the beginning and the last two
};

}  // namespace folio
