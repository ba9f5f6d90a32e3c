// Elementary functions over vectors, for the ISA namespace FOLIO_ISA. Each element depends on its own input alone.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/kernels.h"

namespace folio::cpu::FOLIO_ISA {

// e^x: x = n ln 2 + r with |r| <= ln 2 / 2, the Taylor polynomial of degree 7 in r (5e-9 off), times 2^n in two steps
// so that results below 2^-126 and above 2^127 come out right. Within 1 ulp of the exact value.
inline F exp(F x) {
  // max and min return their second operand for NaN.
  x = min(splat(89.0f), max(splat(-104.0f), x));
  const I n = to_int(mul(x, splat(1.44269504f)));
  const F fn = to_float(n);
  F r = fma(fn, splat(-0x1.62e4p-1f), x);  // ln 2 in two parts, so that r keeps its last bits
  r = fma(fn, splat(-0x1.7f7d1cp-20f), r);
  F p = splat(1.0f / 5040);
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  const I half = sar<1>(n);
  const F a = from_bits(shl<23>(iadd(half, isplat(127))));
  const F b = from_bits(shl<23>(iadd(isub(n, half), isplat(127))));
  return mul(mul(p, a), b);
}

// ln x for finite x >= 1: x = 2^e m with m in [1/sqrt 2, sqrt 2), ln m by the series of atanh (2e-9 off).
inline F log(F x) {
  const I shifted = iadd(bits(x), isplat(0x3f800000 - 0x3f3504f3));
  const I exponent = sar<23>(isub(shifted, isplat(127 << 23)));
  const F m = from_bits(iadd(iand(shifted, isplat(0x7fffff)), isplat(0x3f3504f3)));
  const F f = sub(m, splat(1.0f));
  const F s = div(f, add(splat(2.0f), f));
  const F s2 = mul(s, s);
  F p = splat(2.0f / 9);
  p = fma(p, s2, splat(2.0f / 7));
  p = fma(p, s2, splat(2.0f / 5));
  p = fma(p, s2, splat(2.0f / 3));
  p = fma(mul(p, s2), s, add(s, s));
  const F e = to_float(exponent);
  return fma(e, splat(0x1.62e4p-1f), fma(e, splat(0x1.7f7d1cp-20f), p));
}

// log(1 + e^z), z where z > 20. What 1 + e^z rounds away is put back to first order.
inline F softplus(F z) {
  const F y = exp(min(splat(20.0f), z));
  const F u = add(splat(1.0f), y);
  return max(add(log(u), div(sub(y, sub(u, splat(1.0f))), u)), z);
}

inline F sigmoid(F x) { return div(splat(1.0f), add(splat(1.0f), exp(sub(zero(), x)))); }
inline F silu(F x) { return div(x, add(splat(1.0f), exp(sub(zero(), x)))); }

}  // namespace folio::cpu::FOLIO_ISA
