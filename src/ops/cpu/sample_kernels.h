// Kernels over a row of logits, for the ISA namespace FOLIO_ISA.
#pragma once

#ifndef FOLIO_ISA
#error "included by the translation unit of an ISA"
#endif

#include "ops/cpu/kernels.h"
#include "ops/cpu/math_kernels.h"

namespace folio::cpu::FOLIO_ISA {

// exp((logit - top) * scale) for logits up to `top`. max and min give their second operand where one is NaN: so NaN
// weighs 0, and the top 1 even if it is infinite.
inline F relative(F logit, F top, F scale) {
  const F distance = sub(max(logit, splat(-__builtin_inff())), top);
  return exp(mul(min(distance, zero()), scale));
}

// Up to kLanes logits, -infinity behind.
inline F load_logits(const float* logits, int64_t n) {
  if (n >= kLanes) return load(logits);
  float part[kLanes];
  for (float& lane : part) lane = -__builtin_inff();
  __builtin_memcpy(part, logits, static_cast<size_t>(n) * sizeof(float));
  return load(part);
}

// 4 bytes and about 12 instructions for kLanes logits, twice, the second time from the L1 cache.
inline PartSum log_sum(const float* logits, int64_t n) {
  F tops = splat(-__builtin_inff());
  for (int64_t i = 0; i < n; i += kLanes) tops = max(load_logits(logits + i, n - i), tops);
  const float top = largest(tops);
  F total = zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const F logit = load_logits(logits + i, n - i);
    total = add(total, relative(logit, splat(top), splat(1.0f)));
  }
  return {top, sum(total)};
}

inline void weights(const float* logits, int64_t n, float top, float scale, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, relative(load(logits + i), splat(top), splat(scale)));
  if (i < n) {
    float part[kLanes];
    store(part, relative(load_logits(logits + i, n - i), splat(top), splat(scale)));
    __builtin_memcpy(out + i, part, static_cast<size_t>(n - i) * sizeof(float));
  }
}

}  // namespace folio::cpu::FOLIO_ISA
