// What the engine hands to the model, and what it gets back (docs/architecture.md, "The step law").
#pragma once

#include <type_traits>

#include "ops/rows.h"
#include "ops/sample.h"

namespace folio {

// One forward: the rows of any number of requests. Trivially copyable; everything it points to lives in staging at
// fixed addresses and stays as it is until the step is done.
struct Step {
  StepInputs inputs;
  const SamplingParams* sampling = nullptr;  // [num_head_rows]; null: nothing is sampled
  SampleLists lists;                         // of the rows that are sampled
};
static_assert(std::is_trivially_copyable_v<Step>);

// Device memory, overwritten by the next step.
struct StepOutputs {
  const float* logits = nullptr;     // [num_head_rows, vocab]
  const int32_t* sampled = nullptr;  // [num_head_rows], when the step samples
  const float* logprobs = nullptr;   // [num_head_rows]
  const TopLogprob* top = nullptr;   // [num_head_rows, kMaxTopLogprobs], of the rows that ask for it
};

}  // namespace folio
