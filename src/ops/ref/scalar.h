// Scalar helpers of the reference ops: functions evaluated in double and rounded once to fp32.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/bf16.h"

namespace folio::scalar {

inline float exp(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }
inline float rsqrt(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(x)))); }
inline float silu(float x) {
  const auto v = static_cast<double>(x);
  return static_cast<float>(v / (1.0 + std::exp(-v)));
}
inline float softplus(float x) {
  const auto v = static_cast<double>(x);
  return static_cast<float>(v > 20 ? v : std::log1p(std::exp(v)));
}

// sum of a[i] * b[i], rounded once.
template <typename A, typename B>
float dot(const A* a, const B* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<float>(sum);
}

// mean of x[i]^2, rounded once.
inline float mean_square(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return static_cast<float>(sum / static_cast<double>(n));
}

inline void widen(const bf16* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = to_float(x[i]);
}

}  // namespace folio::scalar
