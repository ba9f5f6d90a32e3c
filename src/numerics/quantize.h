// The block quantisers of activations and cache rows, in packed form: bit-exact to spec/model.md 0.3 to 0.5 and, for
// rows of the fp8 index plane, spec/runtime.md 2.2. Each takes `n` values (a multiple of its group) that lie on the
// bfloat16 grid, writes codes and scales, and has a dequantiser whose result is exact in bfloat16. Pack once, from the
// unrounded values: a second pass over dequantised values may change them (spec 6.10).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "numerics/fp4.h"
#include "numerics/fp8.h"

namespace folio {

namespace detail {

inline float amax(const float* x, int64_t n, float floor) {
  float a = floor;
  for (int64_t i = 0; i < n; ++i) a = std::max(a, std::fabs(x[i]));
  return a;
}

// Writes n E2M1 codes (n a multiple of 16) of x/scale, two in a byte. The cast saturates, which is the clamp of
// the specification.
inline void pack_e2m1(const float* x, int64_t n, float scale, uint8_t* packed) {
  constexpr int64_t kRun = 16;  // codes first, then nibbles: both loops vectorise
  for (int64_t i = 0; i < n; i += kRun) {
    uint8_t codes[kRun];
    for (int64_t k = 0; k < kRun; ++k) codes[k] = e2m1_encode(x[i + k] / scale);
    for (int64_t k = 0; k < kRun / 2; ++k) {
      packed[i / 2 + k] = static_cast<uint8_t>(codes[2 * k] | (codes[2 * k + 1] << 4));
    }
  }
}

}  // namespace detail

constexpr int64_t kQuant8Group = 32;
constexpr int64_t kQuant4IndexGroup = 32;
constexpr int64_t kQuant4MainGroup = 16;

// E4M3 codes [n] of values that share one UE8M0 scale, which it returns: the power of two from amax/448 up. A whole
// row of the fp8 index plane, keys and queries.
inline uint8_t quantize8_row(const float* x, int64_t n, uint8_t* codes) {
  const float scale = pow2up(detail::amax(x, n, 1e-4f) * std::bit_cast<float>(0x3b124925u));
  for (int64_t i = 0; i < n; ++i) codes[i] = e4m3_encode(x[i] / scale);
  return e8m0_encode(scale);
}

inline void dequantize8_row(const uint8_t* codes, uint8_t scale, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = e4m3_decode(codes[i]) * e8m0_decode(scale);
}

// QDQ8 (0.3): E4M3 codes [n] and UE8M0 scales [n/32]. Linear inputs and window rows.
inline void quantize8(const float* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  for (int64_t g = 0; g < n; g += kQuant8Group)
    scales[g / kQuant8Group] = quantize8_row(x + g, kQuant8Group, codes + g);
}

inline void dequantize8(const uint8_t* codes, const uint8_t* scales, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = e4m3_decode(codes[i]) * e8m0_decode(scales[i / kQuant8Group]);
}

// QDQ4_32 (0.4): packed E2M1 [n/2] and UE8M0 scales [n/32]. Index queries and keys.
inline void quantize4_index(const float* x, int64_t n, uint8_t* packed, uint8_t* scales) {
  for (int64_t g = 0; g < n; g += kQuant4IndexGroup) {
    const float amax = detail::amax(x + g, kQuant4IndexGroup, 6.0f * 0x1p-126f);
    const float scale = pow2up(amax * std::bit_cast<float>(0x3e2aaaabu));
    scales[g / kQuant4IndexGroup] = e8m0_encode(scale);
    detail::pack_e2m1(x + g, kQuant4IndexGroup, scale, packed + g / 2);
  }
}

inline void dequantize4_index(const uint8_t* packed, const uint8_t* scales, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = e2m1_decode(fp4_code(packed, i)) * e8m0_decode(scales[i / kQuant4IndexGroup]);
}

// QDQ4_16 (0.5): packed E2M1 [n/2] and E4M3 scales [n/16]. Main (compressed) KV rows.
inline void quantize4_main(const float* x, int64_t n, uint8_t* packed, uint8_t* scales) {
  for (int64_t g = 0; g < n; g += kQuant4MainGroup) {
    const uint8_t code = e4m3_encode(detail::amax(x + g, kQuant4MainGroup, 6.0f * 0x1p-9f) / 6.0f);
    scales[g / kQuant4MainGroup] = code;
    detail::pack_e2m1(x + g, kQuant4MainGroup, e4m3_decode(code), packed + g / 2);
  }
}

inline void dequantize4_main(const uint8_t* packed, const uint8_t* scales, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = e2m1_decode(fp4_code(packed, i)) * e4m3_decode(scales[i / kQuant4MainGroup]);
}

}  // namespace folio
