// The activations of a step, laid out once at fixed addresses. n = rows of a step or of its draft blocks, whichever are
// more, S = streams, D = hidden, H = heads, d = head_dim; buffers of layers that never run at the same time are not
// shared, since they are small beside weights.
#pragma once

#include "checkpoint/config.h"
#include "numerics/bf16.h"
#include "ops/sample.h"
#include "tensor/arena.h"

namespace folio {

struct WorkspaceLimits {
  int64_t max_rows = 0;
  int64_t max_head_rows = 0;     // rows of a step that go through the head
  int64_t window_row_bytes = 0;  // of a window ring row
  int64_t trace_scores = 0;      // index scores kept per row for traces; 0 without a trace
  int64_t max_draft_rows = 0;    // of all draft blocks together; 0 without a draft head
};

// What travels with a row from layer to layer. Three sets: all rows, those that the decoder layers run, and the head
// rows.
struct RowBuffers {
  bf16* streams;  // [n, S, D]
  float* mix;     // [n, S] handed to the next site
  bf16* input;    // [n, D] normed input of a sublayer
  int32_t* positions;
  uint8_t* image;
  float *rope_plain, *rope_scaled;  // [n, pairs, 2]
};

struct Workspace {
  RowBuffers all, decoder, head;

  // The rest of the device part of the step, from begin_step.
  int32_t *ids, *compressed;
  int64_t* engram_rows;  // [Engram layers, n, columns]
  float* rope_group;     // [n, pairs, 2]

  float *pre, *post;  // [n, S]: coefficients of the current site
  float* comb;        // [n, S, S]
  bf16* output;       // [n, D] of a sublayer

  bf16* query_latent;      // [n, q_lora_rank]
  bf16 *query, *core;      // [n, H, d]
  bf16* latent;            // [n, d] window latent
  std::byte* window_rows;  // [n, window_row_bytes] in the ring's format
  bf16* grouped;           // [n, o_groups * o_lora_rank]

  float *compress_kv, *compress_gate;  // [n, d] ratio 2
  bf16* entry;                         // [n, d] compressed entry
  bf16* index_key;                     // [n, index_head_dim]
  bf16* index_query;                   // [n, index heads, index_head_dim]
  bf16* index_weights;                 // [n, index heads]
  int32_t* selected;                   // [n, index_topk]
  int32_t* candidates;                 // [n, candidate_topk_blocks]
  float* index_scores;                 // [n, trace_scores]

  int32_t* expert_ids;  // [n, experts per token]
  float* expert_weights;

  bf16 *engram_input, *engram_kv;  // [n, columns * dim], [n, (S + 1) * D]
  float* engram_gate;              // [n, S]

  bf16* head_input;  // [head rows, D]
  float* logits;     // [head rows or draft rows, vocab]
  int32_t* sampled;  // [head rows]
  float* logprobs;   // [head rows]
  TopLogprob* top;   // [head rows, kMaxTopLogprobs]

  bf16* taps;                        // [n, target layers, D] what the draft stages see of the step's rows
  int32_t* committed;                // [requests of the step: n] rows that each commits
  int32_t* draft_tokens;             // [max_draft_rows]
  float* confidences;                // [max_draft_rows]
  DraftCandidate* draft_candidates;  // [max_draft_rows, kDraftCandidates]

  // Takes every buffer from `arena`; run it on a measuring arena for the size.
  Workspace(Arena& arena, const Config& config, const WorkspaceLimits& limits);
};

}  // namespace folio
