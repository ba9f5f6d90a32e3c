#include "numerics/fp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "numerics/fp8.h"

namespace folio {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint8_t nearest_e2m1(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  size_t best = 0;
  for (size_t code = 1; code < 8; ++code) {
    const double gain = std::fabs(magnitude - kE2M1Values[best]) - std::fabs(magnitude - kE2M1Values[code]);
    if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
  }
  if (magnitude >= kE2M1Max) best = 7;
  return static_cast<uint8_t>(best | (std::signbit(x) ? 8 : 0));
}

TEST(E2M1, EveryCode) {
  const std::vector<float> magnitudes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 16; ++code) {
    const float value = e2m1_decode(code);
    EXPECT_EQ(std::fabs(value), magnitudes[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);  // code 8 is -0
    EXPECT_EQ(e2m1_encode(value), code);
    EXPECT_EQ(e2m1_decode(static_cast<uint8_t>(code | 0xf0)), value);  // the high nibble is not looked at
  }
}

TEST(E2M1, TiesGoToTheEvenCode) {
  struct Tie {
    float at;
    float to;
  };
  for (const Tie tie :
       {Tie{0.25f, 0}, Tie{0.75f, 1}, Tie{1.25f, 1}, Tie{1.75f, 2}, Tie{2.5f, 2}, Tie{3.5f, 4}, Tie{5, 4}}) {
    EXPECT_EQ(e2m1_decode(e2m1_encode(tie.at)), tie.to);
    EXPECT_EQ(e2m1_decode(e2m1_encode(-tie.at)), -tie.to);
    EXPECT_TRUE(std::signbit(e2m1_decode(e2m1_encode(-tie.at))));
    for (float x : {std::nextafter(tie.at, 0.0f), std::nextafter(tie.at, kInfinity)}) {
      EXPECT_EQ(e2m1_encode(x), nearest_e2m1(x)) << x;
      EXPECT_EQ(e2m1_encode(-x), nearest_e2m1(-x)) << x;
    }
    EXPECT_LT(e2m1_decode(e2m1_encode(std::nextafter(tie.at, 0.0f))), tie.at);
    EXPECT_GT(e2m1_decode(e2m1_encode(std::nextafter(tie.at, kInfinity))), tie.at);
  }
}

TEST(E2M1, AgreesWithSearchOverTheWholeRange) {
  for (uint64_t bits = 0; bits < (UINT64_C(1) << 32); bits += 10007) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(x)) continue;
    ASSERT_EQ(e2m1_encode(x), nearest_e2m1(x)) << std::hex << bits;
  }
}

TEST(E2M1, SaturatesAndKeepsSigns) {
  for (float x : {6.0f, 6.5f, 7.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(e2m1_encode(x), 7);
    EXPECT_EQ(e2m1_encode(-x), 15);
  }
  EXPECT_EQ(e2m1_encode(0.0f), 0);
  EXPECT_EQ(e2m1_encode(-0.0f), 8);
  EXPECT_EQ(e2m1_encode(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(e2m1_encode(std::numeric_limits<float>::quiet_NaN()), 7);
  EXPECT_EQ(e2m1_encode(-std::numeric_limits<float>::quiet_NaN()), 15);
}

// Real weights of layer 0 (spec/model.md 3.6): the even element is the low nibble.
TEST(E2M1, PublishedBytes) {
  const std::vector<uint8_t> packed = {0xa0, 0xa8, 0xec, 0x4a, 0xad, 0xaf, 0x42, 0xaa};
  const std::vector<float> values = {0,           -0.0078125f, 0,           -0.0078125f, -0.015625f, -0.03125f,
                                     -0.0078125f, 0.015625f,   -0.0234375f, -0.0078125f, -0.046875f, -0.0078125f,
                                     0.0078125f,  0.015625f,   -0.0078125f, -0.0078125f};
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(e2m1_decode(fp4_code(packed.data(), static_cast<int64_t>(i))) * e8m0_decode(0x78), values[i]) << i;
  }
}

}  // namespace
}  // namespace folio
