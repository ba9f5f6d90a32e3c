// bfloat16: the upper half of an IEEE binary32 (spec/model.md section 0).
#pragma once

#include <bit>
#include <cstdint>

namespace folio {

// A bfloat16 in memory. Arithmetic is done on the widened float.
struct bf16 {
  uint16_t bits;
};

constexpr float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Round to nearest, ties to even; overflow goes to infinity, NaN stays NaN (quiet, sign kept).
constexpr bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// The float nearest to x on the bfloat16 grid.
constexpr float bf16_round(float x) { return to_float(to_bf16(x)); }

}  // namespace folio
