// Speculation beside the model (spec runtime 7): how many drafts were accepted, and acceptance that is forced for
// measurements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace folio {

// How the samples of a verification come about, and with them how many drafts are accepted. With both the answer has
// the distribution of the model without speculation, and a greedy request its very tokens.
enum class Acceptance : uint8_t {
  // Drafts are greedy. A row is sampled as if there were no draft, and the draft is accepted if it is the same: the
  // answer has the bits of a run without speculation (spec runtime 7.5).
  kMatch,
  // Drafts of a sampling request are drawn from the draft head's distribution q (ops/draft.h) and accepted with
  // probability min(1, p / q), else replaced by a draw from max(p - q, 0) (spec/model.md 9.4 b; ops/sample.h). More of
  // them are accepted where q is like p. Every draw depends on the request's seed and the position alone, so the answer
  // does not depend on the company; but it is another than without speculation, and it depends on where the blocks of
  // drafts begin, which a preemption or a step without room for all drafts moves.
  kRatio,
};

// Of verifications, which are spans that had drafts, and of blocks, which are the drafts of a request in one step.
struct SpeculationStats {
  int64_t verifications = 0;
  std::vector<int64_t> drafted, accepted;  // by position in the block, of as many as ever were
  std::vector<int64_t> widths;             // blocks by how many drafts they have
  std::vector<int64_t> lengths;            // blocks by how many of their drafts were verified, 0 and up
  int64_t skipped_steps = 0;               // in which nobody drafted since it did not pay

  // Counts a verification of `drafts` drafts, of which the first `accepted_drafts` were accepted.
  void add(int32_t drafts, int32_t accepted_drafts);
  // Counts a block of `drafts` drafts.
  void add_block(int32_t drafts);
  // Counts a block of which `drafts` drafts go into a step, 0 for one that is passed over.
  void add_length(int32_t drafts);
  // Drafts that were verified, and those of them that were accepted.
  int64_t drafted_tokens() const;
  int64_t accepted_tokens() const;
  // Tokens that a verification gave on average: the accepted drafts and the one behind them; 0 without any.
  double accepted_length() const;
  // Verifications by how many drafts they accepted, 0 and up; they sum up to `verifications`.
  std::vector<int64_t> by_accepted() const;
};

// One line for people; empty if nothing was verified and no step went without drafts for their price.
std::string speculation_summary(const SpeculationStats& stats);

// Acceptance of a fixed mean, whatever the model says (spec runtime 7.6). The text that it gives means nothing.
class ForcedAcceptance {
 public:
  // The mean accepted length is `length`, from 1 to tokens + 1 (forced_refusal): the first floor(length - 1) drafts are
  // always accepted, the next one with the rest as its probability, others never.
  explicit ForcedAcceptance(double length) : length_(length) {}

  // How many of `drafts` drafts are accepted. Depends on the request and the position alone: `stream` names the choice,
  // `index` its token.
  int32_t accepts(uint64_t stream, int64_t index, int32_t drafts) const;

 private:
  double length_;
};

// Why acceptance cannot be forced to a mean length with that many drafts: nothing if it can. `tokens_name` is what sets
// their number, in messages.
std::optional<std::string> forced_refusal(double length, int32_t num_speculative_tokens,
                                          const char* tokens_name = "--num-speculative-tokens");

}  // namespace folio
