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
  const SamplingParams* sampling = nullptr;        // [num_head_rows]; null: nothing is sampled
  SampleLists lists;                               // of the rows that are sampled
  DraftInputs draft;                               // none unless the model drafts
  const SamplingParams* draft_sampling = nullptr;  // [draft.num_requests]; null: all drafts are greedy
};
static_assert(std::is_trivially_copyable_v<Step>);

// Device memory, overwritten by the next step.
struct StepOutputs {
  const float* logits = nullptr;       // [num_head_rows, vocab]
  const int32_t* sampled = nullptr;    // [num_head_rows], when the step samples
  const float* logprobs = nullptr;     // [num_head_rows]
  const TopLogprob* top = nullptr;     // [num_head_rows, kMaxTopLogprobs], of the rows that ask for it
  const int32_t* committed = nullptr;  // [num_requests] rows that are committed, when the step samples
};

// Device memory, overwritten by the next step, like the logits of the step itself.
struct DraftOutputs {
  const int32_t* tokens = nullptr;  // [num_requests, width] proposals, the first for the position behind the anchor's
  const float* confidences = nullptr;  // [num_requests, width] raw logits of being accepted if those before it are
  const float* logits = nullptr;       // [num_requests, width, vocab]
  // [num_requests, width, kDraftCandidates] what the proposals were drawn from (ops/draft.h); null: all are greedy
  const DraftCandidate* candidates = nullptr;
};

}  // namespace folio
