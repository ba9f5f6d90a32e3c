#include "numerics/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace folio {
namespace {

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Bf16, EveryCodeSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16 code = {static_cast<uint16_t>(bits)};
    const float value = to_float(code);
    EXPECT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_round(value))) << bits;
      EXPECT_EQ(std::signbit(bf16_round(value)), std::signbit(value)) << bits;
    } else {
      EXPECT_EQ(to_bf16(value).bits, bits);
    }
  }
}

// Every tie between neighbours, subnormals and the step to infinity included, and the floats beside it.
TEST(Bf16, EveryTieGoesToTheEvenCode) {
  for (uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t low = 0; low < 0x7f80; ++low) {
      const uint32_t code = sign | low;
      const uint32_t tie = code << 16 | 0x8000;
      const uint32_t even = code + (code & 1);
      ASSERT_EQ(to_bf16(from_bits(tie)).bits, even) << std::hex << tie;
      ASSERT_EQ(to_bf16(from_bits(tie - 1)).bits, code) << std::hex << tie;
      ASSERT_EQ(to_bf16(from_bits(tie + 1)).bits, code + 1) << std::hex << tie;
    }
  }
}

TEST(Bf16, Extremes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_bf16(kInfinity).bits, 0x7f80);
  EXPECT_EQ(to_bf16(-kInfinity).bits, 0xff80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bf16(from_bits(0x7f7f7fff)).bits, 0x7f7f);  // just below the tie with infinity
  EXPECT_EQ(to_bf16(0.0f).bits, 0);
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(to_bf16(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TEST(Bf16, NanStaysNan) {
  for (uint32_t bits : {0x7f800001u, 0x7f80ffffu, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    const float rounded = bf16_round(from_bits(bits));
    EXPECT_TRUE(std::isnan(rounded)) << std::hex << bits;
    EXPECT_EQ(std::signbit(rounded), bits >> 31 != 0) << std::hex << bits;
  }
}

}  // namespace
}  // namespace folio
