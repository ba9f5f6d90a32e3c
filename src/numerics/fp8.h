// FP8 element and scale formats: E4M3 ("fn": no infinities, 448 is the largest) and UE8M0 (spec/model.md 0.1).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace folio {

constexpr float kE4M3Max = 448.0f;

constexpr float e4m3_decode(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  float value;
  if (magnitude == 0x7f) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (magnitude < 8) {
    value = static_cast<float>(magnitude) * 0x1p-9f;
  } else {
    value = std::bit_cast<float>((magnitude << 20) + ((127u - 7u) << 23));
  }
  return (code & 0x80) ? -value : value;
}

// Saturating cast, round to nearest, ties to even; NaN becomes 0x7f with the sign of the input.
constexpr uint8_t e4m3_encode(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7f;
  if (a >= 0x43e00000u) return sign | 0x7e;  // 448 and more
  if (a < 0x3c800000u) {                     // below 2^-6: multiples of 2^-9
    // Adding 2^14 leaves the rounded multiple of 2^-9 in the low mantissa bits.
    const float shifted = std::bit_cast<float>(a) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) & 0xffu));
  }
  const uint32_t rounded = a + 0x7ffffu + ((a >> 20) & 1u);
  const uint32_t code = (rounded >> 20) - ((127u - 7u) << 3);
  return static_cast<uint8_t>(sign | (code > 0x7e ? 0x7e : code));
}

// 2^(code - 127): 0 is the subnormal 2^-127, 255 is NaN.
constexpr float e8m0_decode(uint8_t code) {
  if (code == 0) return 0x1p-127f;
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

// The code of a power of two between 2^-127 and 2^127.
constexpr uint8_t e8m0_encode(float power_of_two) {
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(power_of_two) >> 23);
}

// 2^ceil(log2 t) of a positive finite t, from its bits; exact powers of two stay (spec 0.2).
constexpr float pow2up(float t) {
  const uint32_t u = std::bit_cast<uint32_t>(t);
  const uint32_t exponent = (u >> 23) + ((u & 0x7fffffu) != 0 ? 1u : 0u);
  return e8m0_decode(static_cast<uint8_t>(exponent));
}

}  // namespace folio
