// Kernels over one row of activations, for the ISA namespace FOLIO_ISA.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/kernels.h"
#include "ops/cpu/math_kernels.h"

namespace folio::cpu::FOLIO_ISA {

// kLanes elements from i on, or as many as there are before n.
inline F load_bf16_up_to(const uint16_t* x, int64_t i, int64_t n) {
  return n - i >= kLanes ? load_bf16(x + i) : load_bf16_part(x + i, n - i);
}
inline F load_up_to(const float* x, int64_t i, int64_t n) {
  return n - i >= kLanes ? load(x + i) : load_part(x + i, n - i);
}
inline void store_bf16_up_to(uint16_t* p, F x, int64_t i, int64_t n) {
  if (n - i >= kLanes) {
    store_bf16(p + i, x);
  } else {
    store_bf16_part(p + i, x, n - i);
  }
}

// The exponent byte of the power of two from amax/448 up, amax at least 1e-4; 255 for an infinite one.
inline int32_t e4m3_scale_exponent(float amax) {
  const float scaled = (amax > 1e-4f ? amax : 1e-4f) * 0x1.24924ap-9f;  // 1/448
  int32_t u;
  __builtin_memcpy(&u, &scaled, sizeof u);
  return (u + 0x7fffff) >> 23;
}

// The E4M3 value nearest to x, |x| <= 448, zeros positive.
inline F round_e4m3(F x) {
  // Adding 1.5 * 2^23 units of the last kept place leaves that many: 3 bits of mantissa, multiples of 2^-9 at least.
  const I place = imax(iand(bits(x), isplat(0x7f800000)), isplat((127 - 6) << 23));
  const F magic = from_bits(ior(iadd(place, isplat(20 << 23)), isplat(0x400000)));
  return sub(add(x, magic), magic);
}

// QDQ8 of one group of 32 in place (numerics/quantize.h): the same codes, with zeros positive. Returns the exponent
// byte of the scale.
inline int32_t round_group8(F* x) {
  constexpr int kVecs = 32 / kLanes;
  F top = abs(x[0]);
  for (int i = 1; i < kVecs; ++i) top = max(abs(x[i]), top);
  // NaN elements do not take part in the maximum but stay NaN.
  const int32_t exponent = e4m3_scale_exponent(largest(top));
  if (exponent >= 255) {  // an infinity in the group
    for (int i = 0; i < kVecs; ++i) x[i] = from_bits(isplat(0x7fc00000));
    return 255;
  }
  const F scale = from_bits(isplat(exponent << 23)), inverse = from_bits(isplat((254 - exponent) << 23));
  for (int i = 0; i < kVecs; ++i) x[i] = mul(round_e4m3(mul(x[i], inverse)), scale);
  return exponent;
}

// `in` bf16 values -> packed operands. Reads 2 bytes and writes operand_bytes per element.
inline void pack(const PackArgs& args) {
  constexpr int kStep = 8 * kLanes;  // what store_packed takes: kPackColumns or half of it
  auto* out = reinterpret_cast<DecodeBf16::Elem*>(args.out);
  const int64_t columns = packed_columns(args.in);
  for (int64_t k = 0; k < columns; k += kStep) {
    F x[8];
    for (int i = 0; i < 8; ++i) {
      const int64_t at = k + i * kLanes;
      x[i] = at < args.in ? load_bf16_up_to(args.x, at, args.in) : zero();
    }
    if (args.quantize) {
      for (int g = 0; g < kStep / 32; ++g) {
        if (k + 32 * g < args.in) round_group8(x + g * (32 / kLanes));
      }
    }
    store_packed(args.format, x, out + k);
  }
}

inline float widen_element(float x) { return x; }
inline float widen_element(uint16_t x) {
  const uint32_t u = static_cast<uint32_t>(x) << 16;
  float y;
  __builtin_memcpy(&y, &u, sizeof y);
  return y;
}

inline void unpack(Format format, const std::byte* packed, int64_t in, float* out) {
  const auto* x = reinterpret_cast<const DecodeBf16::Elem*>(packed);
  for (int64_t k = 0; k < in; ++k) {
    const int64_t chunk = k / kPackColumns * kPackColumns;
    out[k] = widen_element(x[chunk + packed_position(format, static_cast<int>(k - chunk))]);
  }
}

// Mean of x[i]^2. Like every sum that scales a whole row (norms, mixes, gates) it is taken in double and rounded once:
// an ulp of such a scale flips the rounding of some elements of every row, and these sums cost little beside products.
inline float mean_square(const uint16_t* x, int64_t n) {
  W a = wide_zero(), b = wide_zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const W u = widen(load_bf16(x + i)), v = widen(load_bf16(x + i + kLanes));
    a = fma(u, u, a);
    b = fma(v, v, b);
  }
  for (; i < n; i += kLanes) {
    const W u = widen(load_bf16_up_to(x, i, n));
    a = fma(u, u, a);
  }
  return static_cast<float>(sum(add(a, b)) / static_cast<double>(n));
}

inline float inverse_root(float x) { return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x))); }

inline void norm(const NormArgs& args) {
  const float mean = mean_square(args.x, args.cols);
  const F scale = splat(inverse_root(mean + args.eps));
  for (int64_t i = 0; i < args.cols; i += kLanes) {
    const F y = mul(load_up_to(args.weight, i, args.cols), mul(load_bf16_up_to(args.x, i, args.cols), scale));
    store_bf16_up_to(args.out, y, i, args.cols);
  }
}

inline void swiglu(const SwigluArgs& args) {
  const F limit = splat(args.limit), floor = splat(-args.limit), weight = splat(args.weight);
  for (int64_t i = 0; i < args.count; i += kLanes) {
    F g = load_bf16_up_to(args.gate, i, args.count);
    F u = load_bf16_up_to(args.up, i, args.count);
    if (args.limit > 0) {
      u = min(limit, max(floor, u));
      g = min(limit, g);
    }
    store_bf16_up_to(args.out, mul(weight, mul(silu(g), u)), i, args.count);
  }
}

inline void accumulate(const uint16_t* y, int64_t n, float* acc) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const F total = add(load_up_to(acc, i, n), load_bf16_up_to(y, i, n));
    if (n - i >= kLanes) {
      store(acc + i, total);
    } else {
      store_part(acc + i, total, n - i);
    }
  }
}

inline void accumulate_last(const uint16_t* y, const float* acc, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_bf16_up_to(out, add(load_up_to(acc, i, n), load_bf16_up_to(y, i, n)), i, n);
  }
}

}  // namespace folio::cpu::FOLIO_ISA
