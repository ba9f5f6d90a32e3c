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

// Saturating cast, ties to the even code; the sign of a zero is kept.
constexpr uint8_t e2m1_encode(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const float a = std::bit_cast<float>(u & 0x7fffffffu);
  uint32_t code = 0;
  if (a > 0.25f) code = 1;
  if (a >= 0.75f) code = 2;
  if (a > 1.25f) code = 3;
  if (a >= 1.75f) code = 4;
  if (a > 2.5f) code = 5;
  if (a >= 3.5f) code = 6;
  if (a > 5.0f) code = 7;
  return static_cast<uint8_t>(code | ((u >> 28) & 8u));
}

// Code of element i in packed bytes: even elements in the low nibble.
constexpr uint8_t fp4_code(const uint8_t* packed, int64_t i) {
  return static_cast<uint8_t>((packed[i / 2] >> (4 * (i & 1))) & 15);
}

}  // namespace folio
