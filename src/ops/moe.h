// Mixture of experts (spec 7).
#pragma once

#include "numerics/bf16.h"
#include "ops/weights.h"

namespace folio {

// Router: affinity sqrt(softplus(x . G)), the top `k` of affinity + bias (lowest id on ties), weights from the affinity
// alone, normalised when k > 1, times `scale`.
struct RouteArgs {
  const bf16* x = nullptr;             // [rows, hidden]
  const Weight* gate = nullptr;        // kBf16 [experts, hidden], fp32 arithmetic
  const Weight* bias = nullptr;        // kVector [experts]
  const Weight* bias_image = nullptr;  // kVector [experts], for rows inside an image span
  const uint8_t* image = nullptr;      // [rows]
  int64_t rows = 0;
  int32_t k = 0;
  bool normalise = true;
  float scale = 1;
  int32_t* ids = nullptr;    // out [rows, k], ascending
  float* weights = nullptr;  // out [rows, k]
};

// out = bf(sum over the row's experts, ascending, of w2(bf(weight * silu(g) * u)) + the shared expert's), fp32 sum.
struct ExpertsArgs {
  const Weight* experts = nullptr;  // kExperts
  const bf16* x = nullptr;          // [rows, hidden]
  const int32_t* ids = nullptr;     // [rows, k]
  const float* weights = nullptr;   // [rows, k]
  int64_t rows = 0;
  int32_t k = 0;
  float limit = 0;      // swiglu_limit; 0 = no clamp
  bf16* out = nullptr;  // [rows, hidden]
};

}  // namespace folio
