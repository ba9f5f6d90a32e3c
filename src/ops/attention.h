// Window rows and sparse attention (spec 5.2, 5.5, 5.6).
#pragma once

#include "numerics/bf16.h"
#include "ops/cache_rows.h"
#include "ops/rows.h"
#include "ops/weights.h"

namespace folio {

// Window latents in the ring's row format, quantised once from the unrounded rotated values.
struct EncodeWindowArgs {
  const bf16* x = nullptr;  // [rows, ring.dim], rotated
  int64_t rows = 0;
  RingRows ring;
  std::byte* out = nullptr;  // [rows, ring.row_stride]
};

// Copies the rows of a step into the slots' rings: of each request the last ring_rows. After attention, since a chunk
// wider than the ring overwrites what its own first rows still read.
struct WriteWindowArgs {
  Rows rows;
  const std::byte* encoded = nullptr;  // [rows, ring.row_stride]
  RingRows ring;
};

// One softmax per query and head over a list with fixed slots: window positions oldest first in slots 0 .. window-1
// (empty slots last), then the selected compressed rows ascending, and the sink in the denominator only. Probabilities
// are rounded to bf16 relative to the running maximum at borders of 64 slots; fp32 ones make the denominator. The
// window comes from the ring for positions before the step and from `encoded` for the step's own. Queries may be fewer
// than rows: query i belongs to row query_rows[i].
//
// The rows of a draft block (spec 9.2) have another list: the window's positions before the block by position mod
// window, then the whole block, no slot empty; every row of a block has the same.
struct AttendArgs {
  Rows rows;
  bool decoder = false;                 // the span's bound on the window: decoder_start too, or window_floor alone
  const int32_t* query_rows = nullptr;  // [num_queries] ascending; null: every row
  int32_t num_queries = 0;
  int32_t block = 0;                   // rows of a draft block, which each span is; 0: not drafting
  const bf16* query = nullptr;         // [queries, heads, dim], rotated
  const std::byte* encoded = nullptr;  // [rows, ring.row_stride]
  RingRows ring;
  int32_t window = 0;
  PagedRows main;                     // read when `selected` is set
  const int32_t* selected = nullptr;  // [rows, topk] ascending, -1 padded; null in window-only layers
  int32_t topk = 0;
  const Weight* sink = nullptr;  // kVector [heads]
  int32_t heads = 0;
  int32_t dim = 0;
  bf16* out = nullptr;  // [queries, heads, dim], before the inverse rotation

  int32_t queries() const { return query_rows != nullptr ? num_queries : rows.count; }
  int32_t row_of(int32_t query_index) const { return query_rows != nullptr ? query_rows[query_index] : query_index; }
};

}  // namespace folio
