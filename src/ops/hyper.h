// The four residual streams and their single-pass hyper-connections (mHC, spec 4.2 to 4.4). S = streams, D = hidden.
#pragma once

#include "numerics/bf16.h"
#include "ops/weights.h"

namespace folio {

// Coefficients of one site from the streams before its sublayer (spec 4.3), fp32 throughout.
struct HyperMixArgs {
  const bf16* streams = nullptr;  // [rows, S, D]
  const Weight* fn = nullptr;     // kF32 [(2 + S) * S, S * D]
  const Weight* scale = nullptr;  // kVector [3]
  const Weight* base = nullptr;   // kVector [(2 + S) * S]
  int64_t rows = 0;
  int32_t num_streams = 0;
  int64_t hidden = 0;
  int32_t iterations = 0;  // hc_sinkhorn_iters, the first softmax and column pass included
  float hc_eps = 0;
  float norm_eps = 0;
  float* pre = nullptr;   // [rows, S]
  float* post = nullptr;  // [rows, S]
  float* comb = nullptr;  // [rows, S, S]
};

// out = bf(sum over s of mix[s] * X[s]).
struct HyperCollapseArgs {
  const bf16* streams = nullptr;  // [rows, S, D]
  const float* mix = nullptr;     // [rows, S]
  int64_t rows = 0;
  int32_t num_streams = 0;
  int64_t hidden = 0;
  bf16* out = nullptr;  // [rows, D]
};

// out = bf((sum over s of X[s]) / S), what the draft stages see of a layer's input (spec 9.1).
struct StreamMeansArgs {
  const bf16* streams = nullptr;  // [rows, S, D]
  int64_t rows = 0;
  int32_t num_streams = 0;
  int64_t hidden = 0;
  bf16* out = nullptr;     // row r at out + r * out_stride
  int64_t out_stride = 0;  // elements
};

// X[j] = bf(post[j] * y + sum over i of comb[i][j] * X[i]), in place (spec 4.4).
struct HyperExpandArgs {
  bf16* streams = nullptr;      // [rows, S, D]
  const bf16* y = nullptr;      // [rows, D] output of the sublayer
  const float* post = nullptr;  // [rows, S]
  const float* comb = nullptr;  // [rows, S, S]
  int64_t rows = 0;
  int32_t num_streams = 0;
  int64_t hidden = 0;
};

}  // namespace folio
