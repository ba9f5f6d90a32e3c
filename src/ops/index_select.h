// CSA2 selection: scores, candidate blocks, top-k (spec 6.4 to 6.8).
#pragma once

#include "numerics/bf16.h"
#include "ops/cache_rows.h"
#include "ops/rows.h"

namespace folio {

enum class CandidateRole : uint8_t {
  kNone,
  kWrite,  // fills `candidates` from this layer's scores; its own selection is not restricted
  kRead,   // only positions in the row's candidate blocks compete
};

// Per row: the min(topk, visible) entries with the largest scores, ascending; the lowest position wins ties. Keys are
// read in place. When every visible entry would be selected and nobody asks for scores, none is computed.
//
// The plane's format decides the arithmetic of a score. FP4 (spec 6.5): the query is rounded by QDQ4_32 per head; the
// score is bf(sum over heads of bf(relu(bf(q . k)) * w)). FP8 (spec runtime 6): query and key are E4M3 codes under one
// power of two each, per head and per key; the score is s_k * sum over heads of relu(c_q . c_k) * (w * s_q), in fp32
// with no rounding to bf16.
struct IndexSelectArgs {
  Rows rows;
  const int32_t* query_rows = nullptr;  // [num_queries] rows that select, ascending; null: every row
  int32_t num_queries = 0;
  int32_t ratio = 1;
  const bf16* query = nullptr;         // [queries, heads, keys.dim], rotated, not yet quantised
  const bf16* head_weights = nullptr;  // [queries, heads], scaled
  int32_t heads = 0;
  PagedRows keys;
  int32_t topk = 0;
  int32_t* selected = nullptr;  // out [rows, topk], -1 padded

  CandidateRole role = CandidateRole::kNone;
  int32_t candidate_blocks = 0;   // most blocks that are kept
  int32_t candidate_size = 0;     // positions of a block
  int32_t* candidates = nullptr;  // [rows, candidate_blocks] kept blocks, ascending, -1 padded

  // For traces only; null otherwise. Scores of all visible entries, row r at scores + r * scores_stride; on the bf16
  // grid with an FP4 plane.
  float* scores = nullptr;
  int64_t scores_stride = 0;

  int32_t queries() const { return query_rows != nullptr ? num_queries : rows.count; }
  int32_t row_of(int32_t query_index) const { return query_rows != nullptr ? query_rows[query_index] : query_index; }
};

// out = bf(x * scale), for the index head weights (spec 6.4).
struct ScaleArgs {
  const bf16* x = nullptr;
  float scale = 1;
  int64_t count = 0;
  bf16* out = nullptr;
};

}  // namespace folio
