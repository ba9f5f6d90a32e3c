// Cached rows as operands of the AVX2 kernels: attention rows widened to fp32, index keys to bytes.
#pragma once

#include "ops/cache_rows.h"
#include "ops/cpu/decode_avx2.h"

namespace folio::cpu::avx2 {

constexpr bool kReadsBf16Rows = false;

// The value of an E4M3 scale, in all lanes.
inline F splat_e4m3(uint8_t code) {
  const F value = DecodeFp8::widen_codes(_mm_set1_epi8(static_cast<char>(code)));
  return mul(value, splat(0x1p8f));
}

// A stored row of `dim` (a multiple of 32) values in natural order.
inline void decode_cached(RowFormat format, const uint8_t* codes, const uint8_t* scales, int64_t dim, float* out) {
  if (format == RowFormat::kBf16) {
    for (int64_t d = 0; d < dim; d += kLanes) store(out + d, load_bf16(reinterpret_cast<const uint16_t*>(codes) + d));
  } else if (format == RowFormat::kFp8Window) {
    for (int64_t d = 0; d < dim; d += 32) {
      F w[4];
      DecodeFp8::decode(codes + d, DecodeFp8::scale(scales, d / 32), w);
      for (int i = 0; i < 4; ++i) store(out + d + 8 * i, w[i]);
    }
  } else if (format == RowFormat::kFp4Main) {
    for (int64_t d = 0; d < dim; d += 16) {
      F even, odd;
      look_up_fp4(mul(load(kE2M1Magnitudes), splat_e4m3(scales[d / 16])), codes + d / 2, even, odd);
      const F low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
      store(out + d, _mm256_permute2f128_ps(low, high, 0x20));
      store(out + d + 8, _mm256_permute2f128_ps(low, high, 0x31));
    }
  }
}

inline void decode_fp8_row(const uint8_t* codes, const uint8_t* scales, int64_t dim, uint16_t* out) {
  for (int64_t d = 0; d < dim; d += 32) {
    F w[4];
    DecodeFp8::decode(codes + d, DecodeFp8::scale(scales, d / 32), w);
    for (int i = 0; i < 4; ++i) store_bf16(out + d + 8 * i, w[i]);
  }
}

// Attention's value product, a row at a time.
struct Values {
  using Elem = float;
  using Probability = float;  // on the bf16 grid
  static constexpr int kStep = 1;
  static constexpr int kDims = 8;
  static constexpr int kAccs = 1;
  using Operand = F;

  static void load(const Elem* const* rows, int64_t d, Operand (&v)[kAccs]) { v[0] = cpu::avx2::load(rows[0] + d); }
  static Operand splat(const Probability* p) { return cpu::avx2::splat(*p); }
  static F dot(F acc, Operand v, Operand p) { return fma(v, p, acc); }
  static void store_probabilities(Probability* p, F x) { store(p, round_bf16(x)); }
  static void store_block(uint16_t* out, F x, F) { store_bf16(out, x); }
};

// Eight FP8 index keys as operands of Values: operand d holds element d of every key, one key in each lane.
inline void load_fp8_keys(const uint8_t* const* codes, int64_t dim, F* out) {
  const __m256i by_element =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m256i by_half = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const F unit = splat(0x1p8f);  // widen_codes
  for (int64_t d = 0; d < dim; d += 4) {
    alignas(32) int32_t column[8];
    for (int i = 0; i < 8; ++i) __builtin_memcpy(column + i, codes[i] + d, 4);
    // Bytes d of all keys, then bytes d + 1 ..
    const __m256i bytes = _mm256_permutevar8x32_epi32(
        _mm256_shuffle_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(column)), by_element), by_half);
    const __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
    out[d] = mul(DecodeFp8::widen_codes(low), unit);
    out[d + 1] = mul(DecodeFp8::widen_codes(_mm_srli_si128(low, 8)), unit);
    out[d + 2] = mul(DecodeFp8::widen_codes(high), unit);
    out[d + 3] = mul(DecodeFp8::widen_codes(_mm_srli_si128(high, 8)), unit);
  }
}

// Eight FP4 index keys as columns: column c holds bytes 4c .. 4c + 3 of every key, one key in each lane.
template <int kColumns>
struct KeyColumns {
  __m256i even[kColumns], odd[kColumns];  // doubled E2M1 values of the low and high nibbles, plus 12

  void load(const uint8_t* const* codes) {
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i low = _mm256_set1_epi8(15);
    for (int64_t c = 0; c < kColumns; ++c) {
      alignas(32) int32_t column[8];
      for (int i = 0; i < 8; ++i) __builtin_memcpy(column + i, codes[i] + 4 * c, 4);
      const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i*>(column));
      even[c] = _mm256_shuffle_epi8(table, _mm256_and_si256(bytes, low));
      odd[c] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low));
    }
  }
  // Sums in int16 pairs: a block of 32 products of 24 * 12 at most stays below 2^14.
  static I dot(I acc, I keys, int32_t query) {
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(keys, _mm256_set1_epi32(query)));
  }
  static I finish(I acc) { return _mm256_madd_epi16(acc, _mm256_set1_epi16(1)); }
};

}  // namespace folio::cpu::avx2
