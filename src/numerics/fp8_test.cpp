#include "numerics/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace folio {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

// Value of a magnitude code by the definition of the format.
double e4m3_magnitude(int code) {
  const int exponent = code >> 3;
  const int mantissa = code & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

// The nearest of the 127 magnitudes by search, ties to the even code, saturating.
uint8_t nearest_e4m3(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  int best = 0;
  for (int code = 1; code < 0x7f; ++code) {
    const double gain = std::fabs(magnitude - e4m3_magnitude(best)) - std::fabs(magnitude - e4m3_magnitude(code));
    if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
  }
  if (magnitude >= 448) best = 0x7e;
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

TEST(E4M3, EveryCodeDecodesByDefinition) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_decode(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    EXPECT_EQ(std::fabs(value), e4m3_magnitude(code & 0x7f)) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    EXPECT_EQ(e4m3_encode(value), code);
  }
  EXPECT_EQ(e4m3_decode(0x7e), kE4M3Max);
  EXPECT_EQ(e4m3_decode(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_decode(0x08), 0x1p-6f);
}

TEST(E4M3, EveryTieGoesToTheEvenCode) {
  for (int code = 0; code < 0x7e; ++code) {
    const auto tie = static_cast<float>((e4m3_magnitude(code) + e4m3_magnitude(code + 1)) / 2);
    const int even = code + code % 2;
    EXPECT_EQ(e4m3_encode(tie), even) << code;
    EXPECT_EQ(e4m3_encode(std::nextafter(tie, 0.0f)), code) << code;
    EXPECT_EQ(e4m3_encode(std::nextafter(tie, kInfinity)), code + 1) << code;
    EXPECT_EQ(e4m3_encode(-tie), even | 0x80) << code;
    EXPECT_EQ(e4m3_encode(std::nextafter(-tie, 0.0f)), code | 0x80) << code;
    EXPECT_EQ(e4m3_encode(std::nextafter(-tie, -kInfinity)), (code + 1) | 0x80) << code;
  }
}

TEST(E4M3, AgreesWithSearchOverTheWholeRange) {
  for (uint64_t bits = 0; bits < (UINT64_C(1) << 32); bits += 40013) {
    const float x = from_bits(static_cast<uint32_t>(bits));
    if (std::isnan(x)) continue;
    ASSERT_EQ(e4m3_encode(x), nearest_e4m3(x)) << std::hex << bits;
  }
}

TEST(E4M3, SaturatesAndKeepsSigns) {
  for (float x : {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(e4m3_encode(x), 0x7e) << x;
    EXPECT_EQ(e4m3_encode(-x), 0xfe) << x;
  }
  EXPECT_EQ(e4m3_encode(0.0f), 0x00);
  EXPECT_EQ(e4m3_encode(-0.0f), 0x80);
  EXPECT_EQ(e4m3_encode(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(e4m3_encode(-std::numeric_limits<float>::denorm_min()), 0x80);
  EXPECT_EQ(e4m3_encode(from_bits(0x7fc00000)), 0x7f);
  EXPECT_EQ(e4m3_encode(from_bits(0xff800001)), 0xff);
}

TEST(E8M0, EveryCode) {
  for (int code = 0; code < 255; ++code) {
    const float value = e8m0_decode(static_cast<uint8_t>(code));
    EXPECT_EQ(value, std::ldexp(1.0, code - 127)) << code;
    EXPECT_EQ(e8m0_encode(value), code);
  }
  EXPECT_EQ(std::fpclassify(e8m0_decode(0)), FP_SUBNORMAL);
  EXPECT_TRUE(std::isnan(e8m0_decode(255)));
}

TEST(Pow2Up, ExactPowersStayAndEverythingElseGoesUp) {
  for (int e = -126; e <= 127; ++e) {
    const float power = std::ldexp(1.0f, e);
    EXPECT_EQ(pow2up(power), power) << e;
    if (e < 127) {
      EXPECT_EQ(pow2up(std::nextafter(power, kInfinity)), 2 * power) << e;
      EXPECT_EQ(pow2up(std::nextafter(2 * power, 0.0f)), 2 * power) << e;
    }
    EXPECT_EQ(e8m0_encode(pow2up(power)), e + 127);
  }
  // Below the normal numbers the bits say 2^-126.
  EXPECT_EQ(pow2up(std::numeric_limits<float>::denorm_min()), 0x1p-126f);
  EXPECT_EQ(pow2up(std::nextafter(0x1p-126f, 0.0f)), 0x1p-126f);
}

// Real weights of layer 0 (spec/model.md 3.6).
TEST(E4M3, PublishedBytes) {
  const std::vector<uint8_t> codes = {0xd8, 0x71, 0xf2, 0x79, 0x70, 0x69, 0xf0, 0xe5};
  const std::vector<float> values = {-0.00390625f, 0.03515625f,  -0.0390625f, 0.0703125f,
                                     0.03125f,     0.017578125f, -0.03125f,   -0.0126953125f};
  for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(e4m3_decode(codes[i]) * e8m0_decode(0x73), values[i]) << i;
}

}  // namespace
}  // namespace folio
