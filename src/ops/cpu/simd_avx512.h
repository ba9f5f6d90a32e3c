// The vector type of the AVX512-BF16 translation unit.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace folio::cpu::avx512bf16 {

constexpr int kLanes = 16;
using F = __m512;
using I = __m512i;

// Hides from the compiler where x comes from.
inline void opaque(I& x) { __asm__ volatile("" : "+v"(x)); }

inline F zero() { return _mm512_setzero_ps(); }
inline F splat(float x) { return _mm512_set1_ps(x); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }

// The lanes of an F in double.
struct W {
  __m512d low, high;
};
inline W wide_zero() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
inline W widen(F x) {
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
          _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)))};
}
inline W fma(W a, W b, W c) { return {_mm512_fmadd_pd(a.low, b.low, c.low), _mm512_fmadd_pd(a.high, b.high, c.high)}; }
inline W add(W a, W b) { return {_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)}; }
inline double sum(W x) {
  double lanes[8], total = 0;
  _mm512_storeu_pd(lanes, _mm512_add_pd(x.low, x.high));
  for (const double lane : lanes) total += lane;
  return total;
}
// The second operand where one is NaN.
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline F sqrt(F a) { return _mm512_sqrt_ps(a); }
inline F abs(F a) { return _mm512_abs_ps(a); }
// To the nearest integer, ties to even.
inline I to_int(F x) { return _mm512_cvtps_epi32(x); }
inline F to_float(I x) { return _mm512_cvtepi32_ps(x); }

inline I bits(F x) { return _mm512_castps_si512(x); }
inline F from_bits(I x) { return _mm512_castsi512_ps(x); }
inline I isplat(int32_t x) { return _mm512_set1_epi32(x); }
inline I iadd(I a, I b) { return _mm512_add_epi32(a, b); }
inline I isub(I a, I b) { return _mm512_sub_epi32(a, b); }
inline I iand(I a, I b) { return _mm512_and_si512(a, b); }
inline I ior(I a, I b) { return _mm512_or_si512(a, b); }
inline I imin(I a, I b) { return _mm512_min_epi32(a, b); }
inline I imax(I a, I b) { return _mm512_max_epi32(a, b); }
template <int n>
inline I shl(I a) {
  return _mm512_slli_epi32(a, n);
}
template <int n>
inline I shr(I a) {
  return _mm512_srli_epi32(a, n);
}
template <int n>
inline I sar(I a) {
  return _mm512_srai_epi32(a, n);
}

// One tree: lanes at distance 8, 4, 2, 1.
inline float sum(F x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float largest(F x) { return _mm512_reduce_max_ps(x); }

// The first n < kLanes elements, zeros behind.
inline F load_part(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
inline void store_part(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x); }

inline F widen_bf16(__m256i x) { return from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
inline F load_bf16(const uint16_t* p) { return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline F load_bf16_part(const uint16_t* p, int64_t n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p));
}
// Round to nearest, ties to even; NaN stays NaN.
inline __m256i narrow_bf16(F x) {
  const I u = bits(x);
  const I odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  I rounded = _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff));
  rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
inline void store_bf16(uint16_t* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(x)); }
inline void store_bf16_part(uint16_t* p, F x, int64_t n) {
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), narrow_bf16(x));
}
// Elements 0, 2, 4 .. and 1, 3, 5 .. of 2 * kLanes floats.
inline void split_pairs(const float* p, F& even, F& odd) {
  const F a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + kLanes);
  const I index = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even = _mm512_permutex2var_ps(a, index, b);
  odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(index, _mm512_set1_epi32(1)), b);
}
inline I load_int(const void* p) { return _mm512_loadu_si512(p); }
inline void store_int(void* p, I x) { _mm512_storeu_si512(p, x); }
// The low bytes of the lanes.
inline void store_bytes(uint8_t* p, I x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x)); }
// x on the bf16 grid, as fp32.
inline F round_bf16(F x) { return widen_bf16(narrow_bf16(x)); }

// ---- outputs of a product: groups of kGroup accumulators become kGroup sums

constexpr int kGroup = 8;
using G = __m256;

// The tree of `sum` for eight accumulators at once.
inline G sum_group(const F (&x)[kGroup]) {
  F half[4];  // [a: 8 lanes | b: 8 lanes]
  for (int i = 0; i < 4; ++i) {
    const F a = x[2 * i], b = x[2 * i + 1];
    half[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  F quarter[2];  // [a | b | c | d], four lanes each
  for (int i = 0; i < 2; ++i) {
    const F ab = half[2 * i], cd = half[2 * i + 1];
    quarter[i] = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  }
  // [a a e e | b b f f | c c g g | d d h h]
  const F pairs =
      _mm512_add_ps(_mm512_shuffle_ps(quarter[0], quarter[1], 0x44), _mm512_shuffle_ps(quarter[0], quarter[1], 0xee));
  const F sums = _mm512_add_ps(pairs, _mm512_movehdup_ps(pairs));
  const I order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 4, 8, 12, 2, 6, 10, 14);
  return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, sums));
}
inline G scale_group(G x, float factor) { return _mm256_mul_ps(x, _mm256_set1_ps(factor)); }
inline void store_group(float* p, G x, int64_t n) {
  if (n == kGroup) {
    _mm256_storeu_ps(p, x);
  } else {
    _mm256_mask_storeu_ps(p, static_cast<__mmask8>((1u << n) - 1), x);
  }
}
inline void store_group_bf16(uint16_t* p, G x, int64_t n) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
  rounded = _mm256_mask_or_epi32(rounded, _mm256_cmp_ps_mask(x, x, _CMP_UNORD_Q), u, _mm256_set1_epi32(0x400000));
  const __m128i y = _mm256_cvtepi32_epi16(_mm256_srli_epi32(rounded, 16));
  if (n == kGroup) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), y);
  } else {
    _mm_mask_storeu_epi16(p, static_cast<__mmask8>((1u << n) - 1), y);
  }
}

}  // namespace folio::cpu::avx512bf16
