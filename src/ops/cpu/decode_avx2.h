// Weights widened to fp32 operands, in registers. A decoder turns one chunk of a weight row into kVecs vectors and
// fixes the order of k inside the chunk, which packed activations follow. Decoded FP8 and FP4 values carry their
// block's scale, which is exact.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd_avx2.h"

namespace folio::cpu::avx2 {

struct FloatOperands {
  using Elem = float;
  using Operand = F;
  static constexpr int kElems = kLanes;
  static Operand load(const Elem* p) { return cpu::avx2::load(p); }
  static void store(Elem* p, Operand x) { cpu::avx2::store(p, x); }
  static F dot(F acc, Operand a, Operand b) { return fma(a, b, acc); }
};

struct NoScale {};

struct DecodeBf16 : FloatOperands {
  static constexpr int kChunk = 8;
  static constexpr int kVecs = 1;
  static constexpr int kChunkBytes = 16;
  static constexpr bool kSharedScale = true;
  static constexpr int64_t row_bytes(int64_t in) { return 2 * in; }
  using Scale = NoScale;
  static Scale scale(const uint8_t*, int64_t) { return {}; }
  static void decode(const uint8_t* codes, Scale, Operand (&out)[kVecs]) {
    out[0] = widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  }
};

// E4M3 bits are fp16 bits shifted by one place and worth 2^-8 of it, subnormals included; only NaN must be put back.
struct DecodeFp8 : FloatOperands {
  static constexpr int kChunk = 32;
  static constexpr int kVecs = 4;
  static constexpr int kChunkBytes = 32;
  static constexpr bool kSharedScale = true;
  static constexpr int64_t row_bytes(int64_t in) { return in; }
  struct Scale {
    F factor;
  };
  static Scale scale(const uint8_t* scales, int64_t chunk) {
    return {from_bits(isplat((static_cast<int32_t>(scales[chunk]) + 8) << 23))};
  }
  // The values of the low eight codes, times 2^-8.
  static F widen_codes(__m128i codes) {
    const __m128i c = _mm_cvtepu8_epi16(codes);
    const __m128i half = _mm_and_si128(_mm_srai_epi16(_mm_slli_epi16(c, 8), 1), _mm_set1_epi16(INT16_MIN | 0x3f80));
    const __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(c, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7f));
    return _mm256_or_ps(_mm256_cvtph_ps(half), from_bits(_mm256_cvtepi16_epi32(nan)));
  }
  static void decode(const uint8_t* codes, Scale scale, Operand (&out)[kVecs]) {
    for (int i = 0; i < kVecs; ++i) {
      const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * i));
      out[i] = mul(widen_codes(eight), scale.factor);
    }
  }
};

constexpr float kE2M1Magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// Sixteen FP4 codes in eight bytes, out of a table of scaled magnitudes: the low nibbles and the high ones.
inline void look_up_fp4(F table, const uint8_t* codes, F& even, F& odd) {
  const __m256i sign = _mm256_set1_epi32(INT32_MIN);
  const __m256i c = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  even = _mm256_xor_ps(_mm256_permutevar8x32_ps(table, c), from_bits(_mm256_and_si256(_mm256_slli_epi32(c, 28), sign)));
  odd = _mm256_xor_ps(_mm256_permutevar8x32_ps(table, _mm256_srli_epi32(c, 4)),
                      from_bits(_mm256_and_si256(_mm256_slli_epi32(c, 24), sign)));
}

// Order of k: in each 16 elements the even ones, then the odd ones.
struct DecodeFp4 : FloatOperands {
  static constexpr int kChunk = 32;
  static constexpr int kVecs = 4;
  static constexpr int kChunkBytes = 16;
  static constexpr bool kSharedScale = false;
  static constexpr int64_t row_bytes(int64_t in) { return in / 2; }
  struct Scale {
    F factor;
  };
  static Scale scale(const uint8_t* scales, int64_t chunk) {
    return {from_bits(isplat(static_cast<int32_t>(scales[chunk]) << 23))};
  }
  static void decode(const uint8_t* codes, Scale scale, Operand (&out)[kVecs]) {
    const F table = mul(load(kE2M1Magnitudes), scale.factor);
    for (int i = 0; i < 2; ++i) look_up_fp4(table, codes + 8 * i, out[2 * i], out[2 * i + 1]);
  }
};

// Where element k lies in the packed order.
constexpr int packed_position(Format format, int k) {
  return format == Format::kFp4 ? k / 16 * 16 + k % 2 * 8 + k % 16 / 2 : k;
}

// 64 values, natural order -> packed.
inline void store_packed(Format format, const F (&x)[8], float* out) {
  for (int i = 0; i < 8; i += 2) {
    if (format == Format::kFp4) {
      const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
      const F even = _mm256_shuffle_ps(x[i], x[i + 1], 0x88), odd = _mm256_shuffle_ps(x[i], x[i + 1], 0xdd);
      store(out + 8 * i, _mm256_permutevar8x32_ps(even, order));
      store(out + 8 * i + 8, _mm256_permutevar8x32_ps(odd, order));
    } else {
      store(out + 8 * i, x[i]);
      store(out + 8 * i + 8, x[i + 1]);
    }
  }
}

}  // namespace folio::cpu::avx2
