// One row's draw on the host, shared by the host backends: all but the exponentials.
#pragma once

#include <cstdint>

#include "ops/sample.h"

namespace folio {

struct SampleCandidate {
  float logit;
  float weight;
  int32_t id;
};

// Scratch of one row.
struct SampleScratch {
  static constexpr int64_t kBlock = 256;  // ids whose weights are summed together
  static int64_t blocks(int64_t vocab) { return (vocab + kBlock - 1) / kBlock; }

  float* adjusted = nullptr;              // [vocab] logits after the rules
  float* weights = nullptr;               // [vocab] probability relative to the most likely id
  SampleCandidate* candidates = nullptr;  // [vocab]
  double* sums = nullptr;                 // [blocks(vocab)]
};

// The softmax of a row: the id of its largest logit (lowest on ties), and the sum of exp(logit - largest).
struct LogSum {
  int32_t best = 0;
  float top = 0;
  double total = 1;

  float logprob(float logit) const;
};

// out = the row's logits after its mask, biases and penalties.
void apply_rules(const LogitRules& rules, const SampleLists& lists, const float* logits, int64_t vocab, float* out);

// Draws an id in proportion to its weight, with the filters of `params` and by ratio acceptance if the row checks a
// draft; `position` is the row's. Scratch holds the weights, which are overwritten; `logits` decides who is more
// likely. -1 if no weight is positive.
int32_t draw(const SamplingParams& params, const LogitRules& rules, const SampleLists& lists, const float* logits,
             int64_t vocab, int32_t position, const SampleScratch& scratch);

// Draws token `index` of a draft block, for the row at `position`, from the kDraftCandidates most likely ids under the
// temperature and the filters of `params`, and reports that distribution: out[kDraftCandidates], most likely first, id
// -1 behind the last. A greedy request, and logits of which none is finite, give the largest, lowest id first, and no
// candidates.
int32_t draw_draft(const SamplingParams& params, const float* logits, int64_t vocab, int32_t position, int32_t index,
                   const SampleScratch& scratch, DraftCandidate* out);

// The `count` most likely ids of a row, most likely first, with their log-probabilities; id -1 behind the last finite
// logit.
void top_logprobs(const float* logits, int64_t vocab, const LogSum& softmax, int32_t count,
                  const SampleScratch& scratch, TopLogprob* out);

}  // namespace folio
