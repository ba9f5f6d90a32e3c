// Weights in host memory, for the reference and the CPU backend: the published bytes where they lie (aliasing the
// mapped checkpoint when alignment allows), vectors widened to fp32.
#pragma once

#include <cstdint>
#include <vector>

#include "numerics/bf16.h"
#include "ops/weights.h"

namespace folio {

struct HostWeight : Weight {
  HostWeight(WeightKind kind, int64_t out, int64_t in) : Weight(kind, out, in) {}

  const uint8_t* codes = nullptr;   // kFp8, kFp8Rows: E4M3 [out, in]
  const uint8_t* scales = nullptr;  // kFp8: UE8M0 [ceil(out/32), scale_stride]; kFp8Rows: UE8M0 [out, scale_stride]
  int64_t scale_stride = 0;         // scales in a row: ceil(in/32)
  const bf16* values = nullptr;     // kBf16 [out, in]
  const float* floats = nullptr;    // kVector, kF32 [out, in]

  std::vector<std::byte> owned;  // backs a pointer above when the published bytes could not be aliased
};

// One FP4 projection: packed E2M1 [out, in/2], UE8M0 [out, in/32].
struct HostFp4 {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
};

struct HostExpert {
  HostFp4 w1, w3, w2;
};

// kExperts: out = inner width, in = hidden.
struct HostExperts : Weight {
  HostExperts(int64_t inner, int64_t hidden) : Weight(WeightKind::kExperts, inner, hidden) {}

  std::vector<HostExpert> routed;
  WeightHandle shared_w1, shared_w3, shared_w2;  // kFp8
};

const HostWeight& host(const Weight* weight);
const HostExperts& host_experts(const Weight* weight);

// The builders behind Ops::prepare and Ops::prepare_experts of host backends. Views are checked by the checkpoint's
// schema before they come here.
std::unique_ptr<HostWeight> make_host_weight(WeightKind kind, const WeightViews& views);
std::unique_ptr<HostExperts> make_host_experts(const std::vector<ExpertViews>& routed, const ExpertViews& shared);

// Row `row` of an FP8 or bf16 matrix, or of an FP4 projection with `in` columns, dequantised: [in] floats.
void dequantize_weight_row(const HostWeight& weight, int64_t row, float* out);
void dequantize_fp4_row(const HostFp4& weight, int64_t row, int64_t in, float* out);

}  // namespace folio
