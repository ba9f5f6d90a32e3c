// The rules that a request's fields and its own tokens put on its next draw (ops/sample.h).
#pragma once

#include <unordered_map>

#include "engine/request.h"
#include "engine/step_builder.h"

namespace folio {

// Of one choice.
class LogitLists {
 public:
  // `request` must outlive it.
  explicit LogitLists(const Request& request);

  // The choice's next token.
  void take(int32_t id);
  // The rules change with every token: the next row cannot be built before the last token is known.
  bool follow_tokens() const { return penalises_ || repeats_; }

  // Entries of the step's list of deltas that the draws of generated token `index` and of `drafts` tokens behind it
  // take at most.
  int64_t deltas(int64_t index, int32_t drafts = 0) const;
  // Adds the rules of the draw of generated token `index` to the row that the builder got last. The policy, if there is
  // one, has accepted all tokens before.
  void add_to(StepBuilder& builder, int64_t index, int32_t eos, TokenPolicy* policy) const;

 private:
  void see(int32_t id);
  bool bans_ends(int64_t index) const { return index < request_.min_tokens; }

  const Request& request_;
  bool penalises_;  // presence or frequency
  bool repeats_;
  std::vector<LogitDelta> penalties_;             // of the distinct tokens, in the order of their first occurrence
  std::unordered_map<int32_t, size_t> place_of_;  // in penalties_
  std::vector<int64_t> counts_;                   // of each
  std::vector<uint64_t> seen_;                    // bitset of prompt and output, up to the largest id so far
};

}  // namespace folio
