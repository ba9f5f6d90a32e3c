// Compressed entries of the KV owners (spec 6.1 to 6.3). Buffers are aligned with the step's rows: the row that
// completes a group carries the group's entry, other rows carry nothing and are skipped by the writers.
#pragma once

#include "numerics/bf16.h"
#include "ops/cache_rows.h"
#include "ops/rows.h"

namespace folio {

// Ratio-2 pooling: per channel a softmax over the gates of a group's two tokens weighs their values. The even token may
// lie in an earlier step: its inputs come from the slot's pending ring, which this op then brings up to date.
struct CompressArgs {
  Rows rows;
  const float* kv = nullptr;    // [rows, dim]
  const float* gate = nullptr;  // [rows, dim]
  PendingRows pending;
  bf16* pooled = nullptr;  // out [rows, dim]; zero where the row completes no group
};

// Quantises the rows that complete an entry from their unrounded values and stores them in PAGE memory; bf16 planes
// store the dequantised values. write_main takes QDQ4_16 planes, write_index planes of either
// index format.
struct WritePagedArgs {
  Rows rows;
  int32_t ratio = 1;
  const bf16* x = nullptr;  // [rows, plane.dim], rotated
  PagedRows plane;
};

}  // namespace folio
