// Scores of the keys of an fp8 index plane, for the ISA namespace FOLIO_ISA (spec runtime 6; kernels.h).
//
// Keys stand in lanes: kLanes of them are transposed and widened once into operands, which every head then meets with
// one multiply-add per operand, the sums in fp32 along the dimension. kKeyGroups * kScoreHeads accumulators in
// registers hide the latency and share the loads: 16 products for 2 + 8 loads with AVX-512. A key moves dim + 1 bytes
// and costs heads * dim multiply-adds.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/index_kernels.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/row_kernels.h"

namespace folio::cpu::FOLIO_ISA {

constexpr int kKeyGroups = 2;  // of kLanes keys each
constexpr int kScoreHeads = kLanes == 16 ? 8 : 4;
constexpr int64_t kMaxIndexDim = 256;  // the largest of kIndexDims

// What lies in the memory of an index query.
struct IndexFp8QueryView {
  float* weights;              // [heads] head weight times the head's scale, which is exact
  Values::Probability* codes;  // [heads, dim] E4M3 values

  IndexFp8QueryView(std::byte* memory, int64_t heads) {
    weights = reinterpret_cast<float*>(memory);
    codes = reinterpret_cast<Values::Probability*>(weights + heads);
  }
};

inline int64_t index_fp8_query_bytes(int64_t heads, int64_t dim) {
  return heads * (4 + dim * int64_t{sizeof(Values::Probability)});
}

// Every head to E4M3 under one power of two (numerics/quantize.h, quantize8_row).
inline void index_fp8_query(const IndexQueryArgs& args) {
  const IndexFp8QueryView view(args.out, args.heads);
  for (int64_t h = 0; h < args.heads; ++h) {
    const uint16_t* x = args.query + h * args.dim;
    F top = zero();
    for (int64_t d = 0; d < args.dim; d += kLanes) top = max(abs(load_bf16(x + d)), top);
    const int32_t exponent = e4m3_scale_exponent(largest(top));
    const bool infinite = exponent >= 255;
    const F inverse = from_bits(isplat(infinite ? 0x7fc00000 : (254 - exponent) << 23));
    for (int64_t d = 0; d < args.dim; d += kLanes) {
      Values::store_probabilities(view.codes + h * args.dim + d, round_e4m3(mul(load_bf16(x + d), inverse)));
    }
    const int32_t scale_bits = infinite ? 0x7fc00000 : exponent << 23;
    float scale;
    __builtin_memcpy(&scale, &scale_bits, sizeof scale);
    view.weights[h] = widen_element(args.head_weights[h]) * scale;
  }
}

// Adds relu(q . k) * w of H heads from h on to the totals of all keys.
template <int H>
inline void add_heads(const Values::Operand (&keys)[kKeyGroups][kMaxIndexDim / Values::kStep],
                      const IndexFp8QueryView& view, int64_t dim, int64_t h, F (&total)[kKeyGroups]) {
  F acc[H][kKeyGroups];
  for (int i = 0; i < H; ++i) {
    for (int g = 0; g < kKeyGroups; ++g) acc[i][g] = zero();
  }
  const Values::Probability* query = view.codes + h * dim;
  for (int64_t s = 0; s < dim / Values::kStep; ++s) {
#pragma GCC unroll 8
    for (int i = 0; i < H; ++i) {
      const Values::Operand q = Values::splat(query + i * dim + s * Values::kStep);
#pragma GCC unroll 2
      for (int g = 0; g < kKeyGroups; ++g) acc[i][g] = Values::dot(acc[i][g], keys[g][s], q);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < H; ++i) {
    const F weight = splat(view.weights[h + i]);
    for (int g = 0; g < kKeyGroups; ++g) total[g] = fma(max(zero(), acc[i][g]), weight, total[g]);
  }
}

// One batch of kKeyGroups * kLanes keys; heads are added in ascending order.
inline void score_fp8_lanes(const IndexScoreArgs& args, const IndexFp8QueryView& view, const uint8_t* const* codes,
                            const uint8_t* const* scales, F (&score)[kKeyGroups]) {
  Values::Operand keys[kKeyGroups][kMaxIndexDim / Values::kStep];
  for (int g = 0; g < kKeyGroups; ++g) {
    load_fp8_keys(codes + g * kLanes, args.dim, keys[g]);
    score[g] = zero();
  }
  int64_t h = 0;
  for (; h + kScoreHeads <= args.heads; h += kScoreHeads) add_heads<kScoreHeads>(keys, view, args.dim, h, score);
  for (; h < args.heads; ++h) add_heads<1>(keys, view, args.dim, h, score);
  for (int g = 0; g < kKeyGroups; ++g) score[g] = mul(score[g], key_scale(scales + g * kLanes, 0));
}

inline void index_fp8_score(const IndexScoreArgs& args) {
  constexpr int kBatch = kKeyGroups * kLanes;
  const IndexFp8QueryView view(const_cast<std::byte*>(args.query), args.heads);
  auto* out = static_cast<float*>(args.out);
  for (int64_t i = 0; i < args.count; i += kBatch) {
    // What is missing to a whole batch repeats the last key.
    const uint8_t* codes[kBatch];
    const uint8_t* scales[kBatch];
    for (int64_t j = 0; j < kBatch; ++j) {
      const int64_t key = i + j < args.count ? i + j : args.count - 1;
      codes[j] = args.codes[key];
      scales[j] = args.scales[key];
    }
    F score[kKeyGroups];
    score_fp8_lanes(args, view, codes, scales, score);
    for (int64_t g = 0; g < kKeyGroups; ++g) {
      const int64_t at = i + g * kLanes, left = args.count - at;
      if (left >= kLanes) {
        store(out + at, score[g]);
      } else if (left > 0) {
        store_part(out + at, score[g], left);
      }
    }
  }
}

}  // namespace folio::cpu::FOLIO_ISA
