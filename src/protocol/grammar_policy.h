// A grammar as a policy of the engine.
#pragma once

#include <memory>
#include <vector>

#include "protocol/grammar.h"
#include "protocol/grammar_mask.h"
#include "tokenizer/token_policy.h"

namespace folio {

class GrammarPolicy final : public TokenPolicy {
 public:
  GrammarPolicy(std::shared_ptr<const Grammar> grammar, std::shared_ptr<MaskedAutomaton> automaton)
      : grammar_(std::move(grammar)), automaton_(std::move(automaton)), states_{automaton_->start()} {}

  bool mask(std::span<uint64_t> bits) override;
  // kStop: the text is complete and nothing may follow, or the token may not come, the end of sentence included.
  PolicyVerdict accept(int32_t id) override;
  void rollback(int32_t count) override;

 private:
  std::shared_ptr<const Grammar> grammar_;  // the automaton reads it
  std::shared_ptr<MaskedAutomaton> automaton_;
  std::vector<uint32_t> states_;  // before the first token and behind each
};

}  // namespace folio
