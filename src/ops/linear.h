// Matrix products. y[r, o] = sum over i of W[o, i] x[r, i], fp32 accumulation in an order that depends on the shape of
// W alone.
#pragma once

#include "numerics/bf16.h"
#include "ops/weights.h"

namespace folio {

// bf16 rows in, bf16 or fp32 rows out (exactly one of the two is set).
//   quantized_linear: W is kFp8; x is first rounded by QDQ8 in groups of 32 (QLin, spec 0.6).
//   linear:           W is kBf16; no activation rounding (BLin and FLin, spec 0.7).
struct LinearArgs {
  const Weight* weight = nullptr;
  const bf16* x = nullptr;  // [rows, in]
  int64_t rows = 0;
  bf16* out = nullptr;       // [rows, out], rounded once
  float* out_f32 = nullptr;  // [rows, out], not rounded
};

// The grouped output projection wo_a (spec 5.9): x holds `groups` parts of `in` values, W [groups * rank, in] is kFp8,
// group g of x meets rows g*rank .. of W. No activation rounding.
struct GroupedLinearArgs {
  const Weight* weight = nullptr;
  int64_t groups = 0;
  const bf16* x = nullptr;  // [rows, groups * in]
  int64_t rows = 0;
  bf16* out = nullptr;  // [rows, groups * rank]
};

// RMSNorm (spec 0.8): out = bf(w * (x * rsqrt(mean(x^2) + eps))). `out` may be `x`.
struct RmsNormArgs {
  const bf16* x = nullptr;         // [rows, cols]
  const Weight* weight = nullptr;  // kVector [cols]
  float eps = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  bf16* out = nullptr;
};

// RoPE on the last 2 * pairs elements of each head, adjacent pairs (spec 5.3), in place.
struct RotateArgs {
  bf16* x = nullptr;  // [rows, heads, dim]
  int64_t rows = 0;
  int64_t heads = 1;
  int64_t dim = 0;
  int64_t pairs = 0;
  const float* rope = nullptr;  // [rows, pairs, 2]
  bool inverse = false;
};

}  // namespace folio
