// Drafting and verification (spec/model.md 9). The draft stages themselves are made of the ops of a layer; here is what
// begins and ends them. A draft block is the rows that one request drafts at a time: the anchor, which is its last
// sampled token, and noise tokens behind it.
#pragma once

#include "numerics/bf16.h"
#include "ops/rows.h"
#include "ops/sample.h"
#include "ops/weights.h"

namespace folio {

// Derives the rows of the draft blocks from the slots as the step's commit has left them (spec 9.2): row 0 of a block
// is the anchor at the cursor, the others are noise at the positions after it.
struct BeginDraftArgs {
  DraftInputs inputs;
  const std::byte* cursors = nullptr;  // SlotCursor of slot 0
  int64_t cursor_stride = 0;           // bytes between slots
  int32_t noise = 0;                   // token id
  int32_t rope_pairs = 0;
  const float* frequencies = nullptr;  // [rope_pairs] window-only layers
  int32_t* ids = nullptr;              // out [rows]
  int32_t* positions = nullptr;        // out [rows]
  uint8_t* image = nullptr;            // out [rows] 0
  float* rope = nullptr;               // out [rows, rope_pairs, 2] at the row's position
};

// Draws the blocks' tokens one after the other (spec 9.3): row i adds the Markov bias of the token before it to its
// logits and takes the largest, lowest id on ties; or, with `params`, draws from the kDraftCandidates most likely ids
// under the request's temperature and filters, by (seed, position, place in the block), and reports that distribution.
// The confidence is the raw logit of the probability that the token is accepted if those before it are.
struct DraftHeadsArgs {
  int32_t num_requests = 0;
  int32_t width = 0;                       // rows of a block
  const int32_t* anchors = nullptr;        // [num_requests * width], one per block, at its first row
  const bf16* hidden = nullptr;            // [rows, hidden] collapsed streams, before the norm
  const Weight* embed = nullptr;           // kBf16 [vocab, rank]
  const Weight* head = nullptr;            // kBf16 [vocab, rank]
  const Weight* confidence = nullptr;      // kBf16 [1, hidden + rank]
  float* logits = nullptr;                 // in: of the head, out: with the bias [rows, vocab]
  const SamplingParams* params = nullptr;  // [num_requests]; null: all are greedy
  const int32_t* positions = nullptr;      // [rows] from begin_draft; read with params
  int32_t* tokens = nullptr;               // out [rows]; row i proposes the token behind its own position
  float* confidences = nullptr;            // out [rows]
  // out [rows, kDraftCandidates], with params: what each row was drawn from, most likely first; id -1 behind the last,
  // and for all of a greedy row.
  DraftCandidate* candidates = nullptr;
};

// Accepts drafts (spec 9.4). The head rows of a span with drafts are its last num_drafts + 1 rows, from sampled_row on.
// A draft is accepted while it equals the sample of the row before it; the span commits its rows up to the last
// accepted draft, and the sample of that row is its last token. With forced_accepts that many drafts are accepted
// whatever was sampled, and take the place of the samples.
struct VerifyArgs {
  StepInputs inputs;
  const int32_t* ids = nullptr;  // [rows] from begin_step
  int32_t* sampled = nullptr;    // [num_head_rows], in place
  int32_t* committed = nullptr;  // out [num_requests] rows of each span that are committed
};

}  // namespace folio
