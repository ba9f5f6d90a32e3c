// The first and the last ops of a step.
#pragma once

#include "numerics/bf16.h"
#include "ops/rows.h"
#include "ops/weights.h"

namespace folio {

// Constants of the n-gram hash (spec 8.2, 8.3). All arrays live as long as the model.
struct EngramHash {
  int32_t num_layers = 0;                // Engram layers; 0 = none, then nothing else is read
  int32_t max_ngram = 0;                 // orders 2 .. max_ngram
  int32_t heads = 0;                     // per order; a layer has (max_ngram - 1) * heads columns
  int32_t pad = 0;                       // compressed id that stands in for blocked positions
  const int32_t* compressed = nullptr;   // [vocab] compressed id of each token id
  const int64_t* multipliers = nullptr;  // [num_layers, max_ngram]
  const int64_t* primes = nullptr;       // [num_layers, columns] table rows of each column
  const int64_t* offsets = nullptr;      // [num_layers, columns] first table row of each column

  int32_t columns() const { return (max_ngram - 1) * heads; }
};

// Derives the device part of a step (spec runtime 2.8): sets up the slots that restart; then ids, positions, rotation
// tables, and per Engram layer the table rows of every row, with n-grams that look back through the step's own rows
// into the slot's history and stop at DEAD positions (spec 8.3).
struct BeginStepArgs {
  StepInputs inputs;
  std::byte* cursors = nullptr;  // SlotCursor of slot 0
  int64_t cursor_stride = 0;     // bytes between slots
  EngramHash engram;

  int32_t rope_pairs = 0;                     // rotated dims / 2
  const float* plain_frequencies = nullptr;   // [rope_pairs] window-only layers
  const float* scaled_frequencies = nullptr;  // [rope_pairs] layers with compressed entries (YaRN)

  int32_t* ids = nullptr;          // out [rows] token id, -1 for rows of source kEmbedding
  int32_t* positions = nullptr;    // out [rows]
  uint8_t* image = nullptr;        // out [rows] the inputs' row_image
  int32_t* compressed = nullptr;   // out [rows] compressed id or kDeadId
  int64_t* engram_rows = nullptr;  // out [num_layers, max_rows, columns]
  int64_t engram_layer_stride = 0;
  float* rope_plain = nullptr;   // out [rows, rope_pairs, 2] at the row's position
  float* rope_scaled = nullptr;  // out, at the row's position
  float* rope_group = nullptr;   // out, scaled frequencies at the first position of the row's group of two
};

// Makes a step's effects permanent: cursors advance by the committed rows of their spans, histories take those rows'
// compressed ids, last tokens take the sample of the last of them.
struct CommitArgs {
  StepInputs inputs;
  std::byte* cursors = nullptr;
  int64_t cursor_stride = 0;
  const int32_t* compressed = nullptr;  // [rows] from begin_step; null without Engram
  const int32_t* sampled = nullptr;     // [num_head_rows]; null when nothing was sampled
  const int32_t* committed = nullptr;   // [num_requests] from verify; null: all rows of every span
};

// Input rows of the residual streams: the embedding of each row's id, or its row of the embedding buffer (spec 10.4).
struct EmbedArgs {
  const Weight* table = nullptr;         // kBf16 [vocab, hidden]
  const RowInput* row_inputs = nullptr;  // [rows]; null: every row has an id
  const int32_t* ids = nullptr;          // [rows]
  const uint16_t* embeddings = nullptr;  // bf16 bits
  int32_t rows = 0;
  int32_t streams = 0;
  bf16* out = nullptr;   // [rows, streams, hidden]: all streams equal
  float* mix = nullptr;  // [rows, streams]: (1, 0, ...) (spec 4.1)
};

// out[i] = x[index[i]] for rows of `row_bytes` bytes. `out` and `x` do not overlap.
struct GatherRowsArgs {
  const void* x = nullptr;
  const int32_t* index = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t row_bytes = 0;
  void* out = nullptr;
};

}  // namespace folio
