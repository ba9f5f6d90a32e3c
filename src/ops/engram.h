// Engram: gated n-gram memory (spec 8.4).
#pragma once

#include "numerics/bf16.h"
#include "ops/weights.h"

namespace folio {

// Table rows, dequantised to bf16 (exact), concatenated over columns.
struct EngramGatherArgs {
  const Weight* table = nullptr;        // kFp8Rows [table rows, dim]
  const int64_t* table_rows = nullptr;  // [rows, columns]
  int64_t rows = 0;
  int64_t columns = 0;
  bf16* out = nullptr;  // [rows, columns * dim]
};

// Adds gate * value to every stream, in place. kv holds S keys and one value, each D wide.
struct EngramInjectArgs {
  bf16* streams = nullptr;           // [rows, S, D]
  const bf16* kv = nullptr;          // [rows, (S + 1) * D]
  const Weight* q_weight = nullptr;  // kVector [S, D]
  const Weight* k_weight = nullptr;  // kVector [S, D]
  const uint8_t* image = nullptr;    // [rows] 1: gate is 0
  int64_t rows = 0;
  int32_t num_streams = 0;
  int64_t hidden = 0;
  float norm_eps = 0;
  float* gate = nullptr;  // out [rows, S]
};

}  // namespace folio
