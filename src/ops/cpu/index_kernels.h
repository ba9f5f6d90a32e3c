// Scores of the keys of an fp4 index plane, for the ISA namespace FOLIO_ISA (spec 6.5; kernels.h).
//
// Keys stand in lanes: kLanes of them are transposed once into columns of four bytes, then every head takes two byte
// dots per column and about twenty instructions of scaling and rounding per kLanes keys. A key moves 17/32 byte per
// column of the head dimension and costs heads * dim multiply-adds.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/kernels.h"
#include "ops/cpu/row_kernels.h"

namespace folio::cpu::FOLIO_ISA {

// What lies in the memory of an index query. Codes are doubled E2M1 values, a byte each; per block of 32 columns four
// dwords of even elements and four of odd ones, in the order of KeyColumns.
struct IndexQueryView {
  int32_t* codes;  // [heads, dim / 4]
  int32_t* bias;   // [heads, blocks] -12 * sum of the block's codes: keys are biased by 12
  float* scales;   // [heads, blocks] a quarter of the block's scale: codes are doubled on both sides
  float* weights;  // [heads]

  IndexQueryView(std::byte* memory, int64_t heads, int64_t dim) {
    codes = reinterpret_cast<int32_t*>(memory);
    bias = codes + heads * (dim / 4);
    scales = reinterpret_cast<float*>(bias + heads * (dim / 32));
    weights = scales + heads * (dim / 32);
  }
};

inline int64_t index_query_bytes(int64_t heads, int64_t dim) { return 4 * heads * (dim / 4 + 2 * (dim / 32) + 1); }

// The doubled E2M1 value nearest to x, |x| <= 6; ties to the even code.
inline int32_t doubled_e2m1(float x) {
  const float a = x < 0 ? -x : x;
  int32_t v = 0;
  if (a > 0.25f) v = 1;
  if (a >= 0.75f) v = 2;
  if (a > 1.25f) v = 3;
  if (a >= 1.75f) v = 4;
  if (a > 2.5f) v = 6;
  if (a >= 3.5f) v = 8;
  if (a > 5.0f) v = 12;
  return x < 0 ? -v : v;
}

// QDQ4_32 per head (numerics/quantize.h).
inline void index_query(const IndexQueryArgs& args) {
  const IndexQueryView view(args.out, args.heads, args.dim);
  const int64_t blocks = args.dim / 32;
  for (int64_t h = 0; h < args.heads; ++h) {
    view.weights[h] = widen_element(args.head_weights[h]);
    for (int64_t b = 0; b < blocks; ++b) {
      const uint16_t* x = args.query + h * args.dim + b * 32;
      float amax = 0x1.8p-124f;  // 6 * 2^-126
      for (int i = 0; i < 32; ++i) {
        const float a = widen_element(static_cast<uint16_t>(x[i] & 0x7fffu));
        amax = a > amax ? a : amax;
      }
      const float scaled = amax * 0x1.555556p-3f;  // 1/6
      uint32_t u;
      __builtin_memcpy(&u, &scaled, sizeof u);
      const uint32_t exponent = (u + 0x7fffffu) >> 23;
      const uint32_t scale_bits = exponent == 255 ? 0x7fc00000u : exponent << 23;
      float scale;
      __builtin_memcpy(&scale, &scale_bits, sizeof scale);
      int8_t even[16], odd[16];
      int32_t total = 0;
      for (int i = 0; i < 16; ++i) {
        const int32_t low = doubled_e2m1(widen_element(x[2 * i]) / scale);
        const int32_t high = doubled_e2m1(widen_element(x[2 * i + 1]) / scale);
        even[i] = static_cast<int8_t>(low);
        odd[i] = static_cast<int8_t>(high);
        total += low + high;
      }
      __builtin_memcpy(view.codes + h * (args.dim / 4) + b * 8, even, sizeof even);
      __builtin_memcpy(view.codes + h * (args.dim / 4) + b * 8 + 4, odd, sizeof odd);
      view.bias[h * blocks + b] = -12 * total;
      view.scales[h * blocks + b] = scale * 0.25f;
    }
  }
}

// Round to bf16, ties to even; like round_bf16 but for values that are not NaN with a full mantissa.
inline F round_score(F x) {
  const I u = bits(x);
  const I rounded = iadd(iadd(u, isplat(0x7fff)), iand(shr<16>(u), isplat(1)));
  return from_bits(iand(rounded, isplat(-0x10000)));
}

// bf(relu(bf(q . k)) * w) of kLanes keys for H heads from h on.
template <int B, int H>
inline void head_terms(const KeyColumns<4 * B>& keys, const F (&key_scales)[B], const IndexQueryView& view, int64_t h,
                       F (&terms)[H]) {
  F d[H];
  for (int i = 0; i < H; ++i) d[i] = zero();
#pragma GCC unroll 8
  for (int b = 0; b < B; ++b) {
    I even[H], odd[H];
    for (int i = 0; i < H; ++i) even[i] = odd[i] = isplat(0);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
#pragma GCC unroll 2
      for (int i = 0; i < H; ++i) {
        const int32_t* query = view.codes + (h + i) * 8 * B + 8 * b;
        even[i] = keys.dot(even[i], keys.even[4 * b + c], query[c]);
        odd[i] = keys.dot(odd[i], keys.odd[4 * b + c], query[4 + c]);
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < H; ++i) {
      const int64_t at = (h + i) * B + b;
      const I dot = iadd(iadd(keys.finish(even[i]), keys.finish(odd[i])), isplat(view.bias[at]));
      d[i] = fma(mul(to_float(dot), key_scales[b]), splat(view.scales[at]), d[i]);
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < H; ++i) {
    const F relu = max(zero(), round_score(d[i]));
    terms[i] = round_score(mul(relu, splat(view.weights[h + i])));
  }
}

// UE8M0 scale `b` of each of kLanes keys; 2^-127 for byte 0.
inline F key_scale(const uint8_t* const* scales, int b) {
  int32_t exponents[kLanes];
  for (int i = 0; i < kLanes; ++i) exponents[i] = scales[i][b];
  I lanes;
  __builtin_memcpy(&lanes, exponents, sizeof lanes);
  return from_bits(imax(shl<23>(lanes), isplat(0x00400000)));
}

// kLanes keys; B blocks of 32 columns.
template <int B>
inline void score_lanes(const IndexScoreArgs& args, const IndexQueryView& view, const uint8_t* const* codes,
                        const uint8_t* const* scales, F& score) {
  KeyColumns<4 * B> keys;
  keys.load(codes);
  F key_scales[B];
  for (int b = 0; b < B; ++b) key_scales[b] = key_scale(scales, b);
  // Two heads at a time: one head is a long chain of dependent instructions.
  F total = zero();
  int64_t h = 0;
  for (; h + 2 <= args.heads; h += 2) {
    F terms[2];
    head_terms<B, 2>(keys, key_scales, view, h, terms);
    total = add(add(total, terms[0]), terms[1]);
  }
  if (h < args.heads) {
    F terms[1];
    head_terms<B, 1>(keys, key_scales, view, h, terms);
    total = add(total, terms[0]);
  }
  score = total;
}

template <int B>
inline void score_blocks(const IndexScoreArgs& args) {
  const IndexQueryView view(const_cast<std::byte*>(args.query), args.heads, args.dim);
  auto* out = static_cast<uint16_t*>(args.out);
  for (int64_t i = 0; i < args.count; i += kLanes) {
    F score;
    if (args.count - i >= kLanes) {
      score_lanes<B>(args, view, args.codes + i, args.scales + i, score);
      store_bf16(out + i, score);
      continue;
    }
    const uint8_t* codes[kLanes];
    const uint8_t* scales[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      const int64_t key = i + j < args.count ? i + j : args.count - 1;
      codes[j] = args.codes[key];
      scales[j] = args.scales[key];
    }
    score_lanes<B>(args, view, codes, scales, score);
    store_bf16_part(out + i, score, args.count - i);
  }
}

// Head dimensions of 32, 64, 96, 128 and 256 (kIndexDims); the published models have 64 and 128.
inline void index_score(const IndexScoreArgs& args) {
  switch (args.dim / 32) {
    case 1:
      return score_blocks<1>(args);
    case 2:
      return score_blocks<2>(args);
    case 3:
      return score_blocks<3>(args);
    case 4:
      return score_blocks<4>(args);
    default:
      return score_blocks<8>(args);
  }
}

}  // namespace folio::cpu::FOLIO_ISA
