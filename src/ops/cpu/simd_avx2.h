// The vector type of the AVX2 translation unit.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace folio::cpu::avx2 {

constexpr int kLanes = 8;
using F = __m256;
using I = __m256i;

// Hides from the compiler where x comes from.
inline void opaque(F& x) { __asm__ volatile("" : "+x"(x)); }

inline F zero() { return _mm256_setzero_ps(); }
inline F splat(float x) { return _mm256_set1_ps(x); }
inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F x) { _mm256_storeu_ps(p, x); }
inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F div(F a, F b) { return _mm256_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }

// The lanes of an F in double.
struct W {
  __m256d low, high;
};
inline W wide_zero() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
inline W widen(F x) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}
inline W fma(W a, W b, W c) { return {_mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high)}; }
inline W add(W a, W b) { return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)}; }
inline double sum(W x) {
  double lanes[4], total = 0;
  _mm256_storeu_pd(lanes, _mm256_add_pd(x.low, x.high));
  for (const double lane : lanes) total += lane;
  return total;
}
// The second operand where one is NaN.
inline F max(F a, F b) { return _mm256_max_ps(a, b); }
inline F min(F a, F b) { return _mm256_min_ps(a, b); }
inline F sqrt(F a) { return _mm256_sqrt_ps(a); }
inline F abs(F a) { return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff))); }
// To the nearest integer, ties to even.
inline I to_int(F x) { return _mm256_cvtps_epi32(x); }
inline F to_float(I x) { return _mm256_cvtepi32_ps(x); }

inline I bits(F x) { return _mm256_castps_si256(x); }
inline F from_bits(I x) { return _mm256_castsi256_ps(x); }
inline I isplat(int32_t x) { return _mm256_set1_epi32(x); }
inline I iadd(I a, I b) { return _mm256_add_epi32(a, b); }
inline I isub(I a, I b) { return _mm256_sub_epi32(a, b); }
inline I iand(I a, I b) { return _mm256_and_si256(a, b); }
inline I ior(I a, I b) { return _mm256_or_si256(a, b); }
inline I imin(I a, I b) { return _mm256_min_epi32(a, b); }
inline I imax(I a, I b) { return _mm256_max_epi32(a, b); }
template <int n>
inline I shl(I a) {
  return _mm256_slli_epi32(a, n);
}
template <int n>
inline I shr(I a) {
  return _mm256_srli_epi32(a, n);
}
template <int n>
inline I sar(I a) {
  return _mm256_srai_epi32(a, n);
}

// One tree: lanes at distance 4, 2, 1.
inline float sum(F x) {
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float largest(F x) {
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

inline __m256i lane_mask(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// The first n < kLanes elements, zeros behind.
inline F load_part(const float* p, int64_t n) { return _mm256_maskload_ps(p, lane_mask(n)); }
inline void store_part(float* p, F x, int64_t n) { _mm256_maskstore_ps(p, lane_mask(n), x); }

inline F widen_bf16(__m128i x) { return from_bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
inline F load_bf16(const uint16_t* p) { return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline F load_bf16_part(const uint16_t* p, int64_t n) {
  uint16_t part[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) part[i] = p[i];
  return load_bf16(part);
}
// The bf16 bits of x in the low halves; round to nearest, ties to even; NaN stays NaN.
inline I round_bits(F x) {
  const I u = bits(x);
  const I odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const I rounded = _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
  const I quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const I nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
inline __m128i narrow_bf16(F x) {
  const I y = round_bits(x);
  return _mm_packus_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}
inline void store_bf16(uint16_t* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(x)); }
inline void store_bf16_part(uint16_t* p, F x, int64_t n) {
  uint16_t part[kLanes];
  store_bf16(part, x);
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
}
// Elements 0, 2, 4 .. and 1, 3, 5 .. of 2 * kLanes floats.
inline void split_pairs(const float* p, F& even, F& odd) {
  const F a = load(p), b = load(p + kLanes);
  const I order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
  even = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(a, b, 0x88), order);
  odd = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(a, b, 0xdd), order);
}
inline I load_int(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store_int(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
// The low bytes of the lanes.
inline void store_bytes(uint8_t* p, I x) {
  int32_t lanes[kLanes];
  store_int(lanes, x);
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(lanes[i]);
}
// x on the bf16 grid, as fp32.
inline F round_bf16(F x) { return from_bits(_mm256_slli_epi32(round_bits(x), 16)); }

// ---- outputs of a product: groups of kGroup accumulators become kGroup sums

constexpr int kGroup = 4;
using G = __m128;

// The tree of `sum` for four accumulators at once.
inline G sum_group(const F (&x)[kGroup]) {
  __m128 half[kGroup];
  for (int i = 0; i < kGroup; ++i) {
    half[i] = _mm_add_ps(_mm256_castps256_ps128(x[i]), _mm256_extractf128_ps(x[i], 1));
  }
  const __m128 ab = _mm_add_ps(_mm_movelh_ps(half[0], half[1]), _mm_movehl_ps(half[1], half[0]));  // a a b b
  const __m128 cd = _mm_add_ps(_mm_movelh_ps(half[2], half[3]), _mm_movehl_ps(half[3], half[2]));
  return _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd));
}
inline G scale_group(G x, float factor) { return _mm_mul_ps(x, _mm_set1_ps(factor)); }
inline void store_group(float* p, G x, int64_t n) {
  if (n == kGroup) {
    _mm_storeu_ps(p, x);
    return;
  }
  float part[kGroup];
  _mm_storeu_ps(part, x);
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
}
inline void store_group_bf16(uint16_t* p, G x, int64_t n) {
  uint16_t part[kLanes];
  store_bf16(part, _mm256_castps128_ps256(x));
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
}

}  // namespace folio::cpu::avx2
