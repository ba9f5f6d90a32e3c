// E2M1 (fp4): 4-bit codes, bit 3 is the sign, magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 (spec/model.md 0.1).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace folio {

constexpr float kE2M1Max = 6.0f;
constexpr std::array<float, 16> kE2M1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

constexpr float e2m1_decode(uint8_t code) { return kE2M1Values[code & 15]; }

// Saturating cast, ties to the even code; the sign of a zero is kept. NaN saturates like an infinity of its sign.
constexpr uint8_t e2m1_encode(float x) {
  // Magnitudes order as their bit patterns, and a difference of two has its top bit set when it is negative. A sum of
  // such bits vectorises; comparisons become branches, which random values would mispredict.
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto above = [a = u & 0x7fffffffu](float limit) { return (std::bit_cast<uint32_t>(limit) - a) >> 31; };
  const auto from = [a = u & 0x7fffffffu](float limit) { return (std::bit_cast<uint32_t>(limit) - 1 - a) >> 31; };
  const uint32_t code =
      above(0.25f) + from(0.75f) + above(1.25f) + from(1.75f) + above(2.5f) + from(3.5f) + above(5.0f);
  return static_cast<uint8_t>(code | ((u >> 28) & 8u));
}

// Code of element i in packed bytes: even elements in the low nibble.
constexpr uint8_t fp4_code(const uint8_t* packed, int64_t i) {
  return static_cast<uint8_t>((packed[i / 2] >> (4 * (i & 1))) & 15);
}

}  // namespace folio
