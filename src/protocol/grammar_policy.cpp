#include "protocol/grammar_policy.h"

#include "base/error.h"

namespace folio {

bool GrammarPolicy::mask(std::span<uint64_t> bits) {
  automaton_->mask(states_.back(), bits);
  return true;
}

PolicyVerdict GrammarPolicy::accept(int32_t id) {
  const MaskedAutomaton::Step step = automaton_->next(states_.back(), id);
  states_.push_back(step.state);
  return step.must_end ? PolicyVerdict::kStop : PolicyVerdict::kContinue;
}

void GrammarPolicy::rollback(int32_t count) {
  FOLIO_CHECK(count >= 0 && count < std::ssize(states_));
  states_.resize(states_.size() - static_cast<size_t>(count));
}

}  // namespace folio
