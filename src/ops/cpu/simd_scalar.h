// The vector type of the scalar translation unit: the lanes of the AVX2 one as plain floats.
#pragma once

#include <cstddef>
#include <cstdint>

namespace folio::cpu::scalar {

constexpr int kLanes = 8;
struct F {
  float lane[kLanes];
};
struct I {
  int32_t lane[kLanes];
};

template <typename Op>
inline F each(F a, F b, Op op) {
  F y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = op(a.lane[i], b.lane[i]);
  return y;
}
template <typename Op>
inline I each(I a, I b, Op op) {
  I y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = op(a.lane[i], b.lane[i]);
  return y;
}
inline int32_t as_int(float x) {
  int32_t y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
inline float as_float(int32_t x) {
  float y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}

// Hides from the compiler where x comes from.
inline void opaque(F& x) { __asm__ volatile("" : "+m"(x)); }

inline F splat(float x) {
  F y;
  for (float& lane : y.lane) lane = x;
  return y;
}
inline F zero() { return splat(0.0f); }
inline F load(const float* p) {
  F y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = p[i];
  return y;
}
inline void store(float* p, F x) {
  for (int i = 0; i < kLanes; ++i) p[i] = x.lane[i];
}
inline F add(F a, F b) {
  return each(a, b, [](float x, float y) { return x + y; });
}
inline F sub(F a, F b) {
  return each(a, b, [](float x, float y) { return x - y; });
}
inline F mul(F a, F b) {
  return each(a, b, [](float x, float y) { return x * y; });
}
inline F div(F a, F b) {
  return each(a, b, [](float x, float y) { return x / y; });
}
inline F fma(F a, F b, F c) {
  F y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return y;
}

// The lanes of an F in double, added like the AVX2 ones.
struct W {
  double lane[kLanes];
};
inline W wide_zero() { return {}; }
inline W widen(F x) {
  W y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = static_cast<double>(x.lane[i]);
  return y;
}
inline W fma(W a, W b, W c) {
  W y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = __builtin_fma(a.lane[i], b.lane[i], c.lane[i]);
  return y;
}
inline W add(W a, W b) {
  W y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = a.lane[i] + b.lane[i];
  return y;
}
inline double sum(W x) {
  double total = 0;
  for (int i = 0; i < kLanes / 2; ++i) total += x.lane[i] + x.lane[i + kLanes / 2];
  return total;
}
// The second operand where one is NaN.
inline F max(F a, F b) {
  return each(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline F min(F a, F b) {
  return each(a, b, [](float x, float y) { return x < y ? x : y; });
}
inline F sqrt(F a) {
  for (float& lane : a.lane) lane = __builtin_sqrtf(lane);
  return a;
}
inline F abs(F a) {
  for (float& lane : a.lane) lane = __builtin_fabsf(lane);
  return a;
}
// To the nearest integer, ties to even; INT_MIN for what has none, as the vector units do.
inline I to_int(F x) {
  I y;
  for (int i = 0; i < kLanes; ++i) {
    const float v = __builtin_rintf(x.lane[i]);
    y.lane[i] = v >= -0x1p31f && v < 0x1p31f ? static_cast<int32_t>(v) : INT32_MIN;
  }
  return y;
}
inline F to_float(I x) {
  F y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = static_cast<float>(x.lane[i]);
  return y;
}

inline I bits(F x) {
  I y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = as_int(x.lane[i]);
  return y;
}
inline F from_bits(I x) {
  F y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = as_float(x.lane[i]);
  return y;
}
inline I isplat(int32_t x) {
  I y;
  for (int32_t& lane : y.lane) lane = x;
  return y;
}
inline I iadd(I a, I b) {
  return each(a, b, [](int32_t x, int32_t y) {
    return static_cast<int32_t>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y));
  });
}
inline I isub(I a, I b) {
  return each(a, b, [](int32_t x, int32_t y) {
    return static_cast<int32_t>(static_cast<uint32_t>(x) - static_cast<uint32_t>(y));
  });
}
inline I iand(I a, I b) {
  return each(a, b, [](int32_t x, int32_t y) { return x & y; });
}
inline I ior(I a, I b) {
  return each(a, b, [](int32_t x, int32_t y) { return x | y; });
}
inline I imin(I a, I b) {
  return each(a, b, [](int32_t x, int32_t y) { return x < y ? x : y; });
}
inline I imax(I a, I b) {
  return each(a, b, [](int32_t x, int32_t y) { return x > y ? x : y; });
}
template <int n>
inline I shl(I a) {
  for (int32_t& lane : a.lane) lane = static_cast<int32_t>(static_cast<uint32_t>(lane) << n);
  return a;
}
template <int n>
inline I shr(I a) {
  for (int32_t& lane : a.lane) lane = static_cast<int32_t>(static_cast<uint32_t>(lane) >> n);
  return a;
}
template <int n>
inline I sar(I a) {
  for (int32_t& lane : a.lane) lane >>= n;
  return a;
}

// One tree: lanes at distance 4, 2, 1.
inline float sum(F x) {
  const float* v = x.lane;
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
inline float largest(F x) {
  float y = x.lane[0];
  for (float lane : x.lane) y = lane > y ? lane : y;
  return y;
}

// The first n < kLanes elements, zeros behind.
inline F load_part(const float* p, int64_t n) {
  F y = zero();
  for (int64_t i = 0; i < n; ++i) y.lane[i] = p[i];
  return y;
}
inline void store_part(float* p, F x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = x.lane[i];
}
inline F load_bf16_part(const uint16_t* p, int64_t n) {
  F y = zero();
  for (int64_t i = 0; i < n; ++i) y.lane[i] = as_float(p[i] << 16);
  return y;
}
inline F load_bf16(const uint16_t* p) { return load_bf16_part(p, kLanes); }
// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t narrow_bf16(float x) {
  const auto u = static_cast<uint32_t>(as_int(x));
  if (x != x) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline void store_bf16_part(uint16_t* p, F x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = narrow_bf16(x.lane[i]);
}
inline void store_bf16(uint16_t* p, F x) { store_bf16_part(p, x, kLanes); }
// Elements 0, 2, 4 .. and 1, 3, 5 .. of 2 * kLanes floats.
inline void split_pairs(const float* p, F& even, F& odd) {
  for (int i = 0; i < kLanes; ++i) {
    even.lane[i] = p[2 * i];
    odd.lane[i] = p[2 * i + 1];
  }
}
inline I load_int(const void* p) {
  I y;
  __builtin_memcpy(&y, p, sizeof y);
  return y;
}
inline void store_int(void* p, I x) { __builtin_memcpy(p, &x, sizeof x); }
// The low bytes of the lanes.
inline void store_bytes(uint8_t* p, I x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(x.lane[i]);
}
// x on the bf16 grid, as fp32.
inline F round_bf16(F x) {
  for (float& lane : x.lane) lane = as_float(static_cast<int32_t>(static_cast<uint32_t>(narrow_bf16(lane)) << 16));
  return x;
}

// ---- outputs of a product: groups of kGroup accumulators become kGroup sums

constexpr int kGroup = 4;
struct G {
  float lane[kGroup];
};

inline G sum_group(const F (&x)[kGroup]) {
  G y;
  for (int i = 0; i < kGroup; ++i) y.lane[i] = sum(x[i]);
  return y;
}
inline G scale_group(G x, float factor) {
  for (float& lane : x.lane) lane *= factor;
  return x;
}
inline void store_group(float* p, G x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = x.lane[i];
}
inline void store_group_bf16(uint16_t* p, G x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = narrow_bf16(x.lane[i]);
}

}  // namespace folio::cpu::scalar
