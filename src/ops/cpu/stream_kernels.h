// Kernels over one row beside the norms: residual streams, rotation, quantised rows, gates, for the ISA namespace
// FOLIO_ISA.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/kernels.h"
#include "ops/cpu/math_kernels.h"
#include "ops/cpu/row_kernels.h"

namespace folio::cpu::FOLIO_ISA {

// A sum of a few terms as if it were rounded once: every addition's error is kept and added at the end. The streams are
// rounded to bf16 twice a layer, and a flip there moves everything behind it, so these sums are worth the care.
struct ExactSum {
  F total, error;

  explicit ExactSum(F first) : total(first), error(zero()) {}
  void operator+=(F term) {
    const F next = add(total, term), taken = sub(next, total);
    error = add(error, add(sub(total, sub(next, taken)), sub(term, taken)));
    total = next;
  }
  F rounded() const { return add(total, error); }
};

inline void collapse(const CollapseArgs& args) {
  for (int64_t d = 0; d < args.hidden; d += kLanes) {
    ExactSum sum(mul(splat(args.mix[0]), load_bf16_up_to(args.x, d, args.hidden)));
    for (int64_t s = 1; s < args.streams; ++s) {
      sum += mul(splat(args.mix[s]), load_bf16_up_to(args.x + s * args.hidden, d, args.hidden));
    }
    store_bf16_up_to(args.out, sum.rounded(), d, args.hidden);
  }
}

template <int S>
inline void expand_streams(const ExpandArgs& args) {
  for (int64_t d = 0; d < args.hidden; d += kLanes) {
    F x[S];
    for (int s = 0; s < S; ++s) x[s] = load_bf16_up_to(args.x + s * args.hidden, d, args.hidden);
    const F y = load_bf16_up_to(args.y, d, args.hidden);
    for (int j = 0; j < S; ++j) {
      ExactSum carried(mul(splat(args.comb[j]), x[0]));
      for (int i = 1; i < S; ++i) carried += mul(splat(args.comb[i * S + j]), x[i]);
      const F out = add(mul(splat(args.post[j]), y), carried.rounded());
      store_bf16_up_to(args.x + j * args.hidden, out, d, args.hidden);
    }
  }
}

inline void expand(const ExpandArgs& args) {
  switch (args.streams) {
    case 1:
      return expand_streams<1>(args);
    case 2:
      return expand_streams<2>(args);
    case 3:
      return expand_streams<3>(args);
    case 4:
      return expand_streams<4>(args);
    case 5:
      return expand_streams<5>(args);
    case 6:
      return expand_streams<6>(args);
    case 7:
      return expand_streams<7>(args);
    default:
      return expand_streams<8>(args);
  }
}

// ---- mixes: fp32 weights

constexpr int64_t kMixAhead = 512;          // elements: rows are many pages long, and each page starts cold
constexpr int kMixRows = 3, kMixGroup = 4;  // 24 vectors of sums in double with AVX-512

// Sums in double: what a mix is off by moves every element of the streams.
template <int R>
inline void mix_group(const MixArgs& args, int64_t r0, int64_t output) {
  const int64_t last = args.first + args.count - 1;
  const float* w[kMixGroup];
  for (int n = 0; n < kMixGroup; ++n) w[n] = args.fn + (output + n < last ? output + n : last) * args.width;
  const uint16_t* x = args.x + r0 * args.width;
  W acc[R][kMixGroup];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < kMixGroup; ++n) acc[r][n] = wide_zero();
  }
  for (int64_t k = 0; k < args.width; k += kLanes) {
    W a[R];
    for (int r = 0; r < R; ++r) a[r] = widen(load_bf16_up_to(x + r * args.width, k, args.width));
#pragma GCC unroll 4
    for (int n = 0; n < kMixGroup; ++n) {
      __builtin_prefetch(w[n] + k + kMixAhead);
      const W b = widen(load_up_to(w[n], k, args.width));
      for (int r = 0; r < R; ++r) acc[r][n] = fma(b, a[r], acc[r][n]);
    }
  }
  for (int r = 0; r < R; ++r) {
    float* out = args.out + (r0 + r) * args.out_stride + output;
    for (int n = 0; n < kMixGroup && output + n <= last; ++n) out[n] = static_cast<float>(sum(acc[r][n]));
  }
}

inline void mix(const MixArgs& args) {
  for (int64_t r = 0; r < args.rows;) {
    const int64_t set = args.rows - r >= kMixRows ? kMixRows : 1;
    for (int64_t output = args.first; output < args.first + args.count; output += kMixGroup) {
      if (set == kMixRows) {
        mix_group<kMixRows>(args, r, output);
      } else {
        mix_group<1>(args, r, output);
      }
    }
    r += set;
  }
}

inline float inject(const InjectArgs& args) {
  W dots = wide_zero();
  for (int64_t d = 0; d < args.hidden; d += kLanes) {
    const F x = load_bf16_up_to(args.x, d, args.hidden), k = load_bf16_up_to(args.key, d, args.hidden);
    const F weight = mul(load_up_to(args.q_weight, d, args.hidden), load_up_to(args.k_weight, d, args.hidden));
    dots = add(dots, widen(mul(mul(x, weight), k)));
  }
  const float norm = inverse_root(mean_square(args.x, args.hidden) + args.eps) *
                     inverse_root(mean_square(args.key, args.hidden) + args.eps);
  const float dot = static_cast<float>(sum(dots)) * norm * args.dot_scale;
  const float size = __builtin_fabsf(dot);
  const float root = __builtin_sqrtf(size > 1e-6f || size != size ? size : 1e-6f);
  float lanes[kLanes];
  store(lanes, sigmoid(splat(__builtin_copysignf(root, dot))));
  const float gate = args.image ? 0.0f : lanes[0];
  for (int64_t d = 0; d < args.hidden; d += kLanes) {
    const F value = mul(splat(gate), load_bf16_up_to(args.value, d, args.hidden));
    store_bf16_up_to(args.x, add(load_bf16_up_to(args.x, d, args.hidden), value), d, args.hidden);
  }
  return gate;
}

// kLanes pairs: a pair is a dword, its first element in the low half.
inline I rotate_pairs(I pairs, F cos, F sin) {
  const F a = from_bits(shl<16>(pairs)), b = from_bits(iand(pairs, isplat(-0x10000)));
  const F x = round_bf16(sub(mul(a, cos), mul(b, sin))), y = round_bf16(add(mul(a, sin), mul(b, cos)));
  return ior(shr<16>(bits(x)), bits(y));
}

inline void rotate(const RotateRowArgs& args) {
  const F sign = splat(args.inverse ? -1.0f : 1.0f);
  for (int64_t j = 0; j < args.pairs; j += kLanes) {
    const int64_t n = args.pairs - j < kLanes ? args.pairs - j : kLanes;
    float table[2 * kLanes] = {};
    __builtin_memcpy(table, args.rope + 2 * j, static_cast<size_t>(n) * 2 * sizeof(float));
    F cos, sin;
    split_pairs(table, cos, sin);
    sin = mul(sin, sign);
    for (int64_t h = 0; h < args.heads; ++h) {
      uint16_t* x = args.x + h * args.head_stride + 2 * j;
      if (n == kLanes) {
        store_int(x, rotate_pairs(load_int(x), cos, sin));
        continue;
      }
      uint16_t part[2 * kLanes] = {};
      __builtin_memcpy(part, x, static_cast<size_t>(n) * 4);
      store_int(part, rotate_pairs(load_int(part), cos, sin));
      __builtin_memcpy(x, part, static_cast<size_t>(n) * 4);
    }
  }
}

inline void pool(const PoolArgs& args) {
  for (int64_t c = 0; c < args.dim; c += kLanes) {
    const F g0 = load_up_to(args.gate0, c, args.dim), g1 = load_up_to(args.gate1, c, args.dim);
    const F top = max(g0, g1);
    const F e0 = exp(sub(g0, top)), e1 = exp(sub(g1, top));
    const F total = add(e0, e1);
    const F first = mul(load_up_to(args.kv0, c, args.dim), div(e0, total));
    const F second = mul(load_up_to(args.kv1, c, args.dim), div(e1, total));
    store_bf16_up_to(args.out, add(first, second), c, args.dim);
  }
}

inline void affinity(const float* z, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const F a = sqrt(softplus(load_up_to(z, i, n)));
    if (n - i >= kLanes) {
      store(y + i, a);
    } else {
      store_part(y + i, a, n - i);
    }
  }
}

// One group of 32 in natural order, rounded but with the signs of the inputs, zeros included; returns the scale byte.
inline int32_t load_round8(const uint16_t* x, F (&rounded)[32 / kLanes]) {
  for (int i = 0; i < 32 / kLanes; ++i) rounded[i] = load_bf16(x + i * kLanes);
  const int32_t exponent = round_group8(rounded);
  for (int i = 0; i < 32 / kLanes; ++i) {
    const I sign = iand(bits(load_bf16(x + i * kLanes)), isplat(INT32_MIN));
    rounded[i] = from_bits(ior(bits(rounded[i]), sign));
  }
  return exponent;
}

inline void quantize8(const uint16_t* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  for (int64_t g = 0; g < n; g += 32) {
    F v[32 / kLanes];
    const int32_t exponent = load_round8(x + g, v);
    scales[g / 32] = static_cast<uint8_t>(exponent);
    const F inverse = from_bits(isplat((254 - exponent) << 23));
    for (int i = 0; i < 32 / kLanes; ++i) {
      const F q = mul(v[i], inverse);
      const F magnitude = abs(q);
      // Normal codes are the upper bits; below 2^-6 the multiple of 2^-9, which is the larger of the two there.
      const I normal = isub(shr<20>(bits(magnitude)), isplat((127 - 7) << 3));
      const I step = imin(to_int(mul(magnitude, splat(512.0f))), isplat(8));
      const I sign = iand(shr<24>(bits(q)), isplat(0x80));
      store_bytes(codes + g + i * kLanes, ior(imax(normal, step), sign));
    }
  }
}

inline void round8(const uint16_t* x, int64_t n, uint16_t* out) {
  for (int64_t g = 0; g < n; g += 32) {
    F v[32 / kLanes];
    load_round8(x + g, v);
    for (int i = 0; i < 32 / kLanes; ++i) store_bf16(out + g + i * kLanes, v[i]);
  }
}

}  // namespace folio::cpu::FOLIO_ISA
