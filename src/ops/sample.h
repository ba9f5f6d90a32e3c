// Drawing the next token (spec protocol 5.12).
#pragma once

#include <cstdint>

#include "ops/rows.h"

namespace folio {

// Below this temperature sampling is greedy.
constexpr float kGreedyTemperature = 1e-5f;

struct SamplingParams {
  float temperature = 1;  // below kGreedyTemperature: the largest logit, lowest id on ties
  int32_t top_k = 0;      // 0 = all
  float top_p = 1;        // smallest set of most likely tokens whose probability reaches this
  float min_p = 0;        // drops tokens less likely than this share of the most likely one
  uint64_t seed = 0;      // the draw of a position depends on (seed, position) alone
  int32_t forced = -1;    // not -1: this id is taken, for its log-probability
};

struct SampleArgs {
  const float* logits = nullptr;  // [num_rows, vocab]
  int64_t vocab = 0;
  int32_t num_rows = 0;                    // head rows
  const int32_t* head_rows = nullptr;      // [num_rows] row of the step
  const int32_t* positions = nullptr;      // [rows of the step]
  const SamplingParams* params = nullptr;  // [num_rows]
  int32_t* sampled = nullptr;              // out [num_rows]
  float* logprobs = nullptr;               // out [num_rows] log-probability of the sample under the unmodified logits
};

}  // namespace folio
