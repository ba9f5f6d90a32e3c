#include "numerics/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "numerics/bf16.h"

namespace folio {
namespace {

// One group of every quantiser.
struct Packed {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  std::vector<float> values;
};

Packed pack8(const std::vector<float>& x) {
  Packed p{std::vector<uint8_t>(x.size()), std::vector<uint8_t>(x.size() / 32), std::vector<float>(x.size())};
  quantize8(x.data(), std::ssize(x), p.codes.data(), p.scales.data());
  dequantize8(p.codes.data(), p.scales.data(), std::ssize(x), p.values.data());
  return p;
}
Packed pack4_index(const std::vector<float>& x) {
  Packed p{std::vector<uint8_t>(x.size() / 2), std::vector<uint8_t>(x.size() / 32), std::vector<float>(x.size())};
  quantize4_index(x.data(), std::ssize(x), p.codes.data(), p.scales.data());
  dequantize4_index(p.codes.data(), p.scales.data(), std::ssize(x), p.values.data());
  return p;
}
Packed pack4_main(const std::vector<float>& x) {
  Packed p{std::vector<uint8_t>(x.size() / 2), std::vector<uint8_t>(x.size() / 16), std::vector<float>(x.size())};
  quantize4_main(x.data(), std::ssize(x), p.codes.data(), p.scales.data());
  dequantize4_main(p.codes.data(), p.scales.data(), std::ssize(x), p.values.data());
  return p;
}

std::vector<uint8_t> unpacked(const std::vector<uint8_t>& packed) {
  std::vector<uint8_t> codes;
  for (const uint8_t byte : packed) {
    codes.push_back(byte & 15);
    codes.push_back(byte >> 4);
  }
  return codes;
}

std::vector<uint8_t> hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find(' ', i), text.size());
    bytes.push_back(static_cast<uint8_t>(std::strtol(text.substr(i, end - i).c_str(), nullptr, 16)));
    i = end + 1;
  }
  return bytes;
}

// The block of spec/model.md section 12.
std::vector<float> sample_block() {
  std::vector<float> x;
  for (const uint16_t bits : std::initializer_list<uint16_t>{
           0x3ee3, 0x3fa2, 0x3fbe, 0x3f82, 0x3d7f, 0xbf6b, 0xbfbc, 0xbfaa, 0xbf10, 0x3eef, 0x3fa3,
           0x3fbe, 0x3f7f, 0x3d18, 0xbf70, 0xbfbc, 0xbdc5, 0xbd21, 0x3d14, 0x3dc2, 0x3dde, 0x3d92,
           0x3a66, 0xbd90, 0xbdde, 0xbdc3, 0xbd1a, 0x3d1b, 0x3dc3, 0x3dde, 0x3d90, 0xba7f}) {
    x.push_back(to_float({bits}));
  }
  return x;
}

TEST(Quantize, SpecificationSample) {
  const std::vector<float> x = sample_block();
  const Packed p8 = pack8(x);
  EXPECT_EQ(p8.scales, std::vector<uint8_t>{119});
  EXPECT_EQ(p8.codes,
            hex("6e 7a 7c 78 58 f7 fc fb f1 6f 7a 7c 78 52 f7 fc dc d2 51 5c 5e 59 26 d9 de dc d2 52 5c 5e 59 a8"));
  const Packed index = pack4_index(x);
  EXPECT_EQ(index.scales, std::vector<uint8_t>{125});
  EXPECT_EQ(unpacked(index.codes), hex("4 7 7 6 0 e f f c 4 7 7 6 0 e f 9 8 0 1 1 1 0 9 9 9 8 0 1 1 1 8"));
  const Packed main = pack4_main(x);
  EXPECT_EQ(main.scales, (std::vector<uint8_t>{0x28, 0x09}));
  EXPECT_EQ(unpacked(main.codes), hex("4 7 7 6 0 e f f c 4 7 7 6 0 e f f c 4 7 7 6 0 e f f c 4 7 7 6 8"));
}

// Scales of spec/model.md 0.3: largest magnitude -> exponent.
TEST(Quantize8, ScaleExamples) {
  struct Example {
    float largest;
    int exponent;
  };
  for (const Example e : {Example{448, 0}, Example{224, -1}, Example{450, 1}, Example{6, -6}, Example{1e-4f, -22},
                          Example{0, -22}, Example{1e-30f, -22}}) {
    std::vector<float> x(32, 0.0f);
    x[17] = -e.largest;
    EXPECT_EQ(pack8(x).scales[0], e.exponent + 127) << e.largest;
  }
}

// Groups do not look at each other.
TEST(Quantize, GroupsAreIndependent) {
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = bf16_round(static_cast<float>(i < 32 ? i : 100 * i) * 0.01f);
  for (const auto& pack : {pack8, pack4_index, pack4_main}) {
    const Packed both = pack(x);
    const Packed first = pack({x.begin(), x.begin() + 32});
    const Packed second = pack({x.begin() + 32, x.end()});
    std::vector<float> joined = first.values;
    joined.insert(joined.end(), second.values.begin(), second.values.end());
    EXPECT_EQ(both.values, joined);
  }
}

// The definitions of 0.3 to 0.5 in double precision, where every intermediate value that fp32 would hold exactly is
// exact. The two that fp32 rounds (a * C and a / 6, x / s of QDQ4_16) are rounded here too.
TEST(Quantize, AgreesWithTheDefinitionOnRandomBlocks) {
  for (uint64_t block = 0; block < 4000; ++block) {
    std::vector<float> x(32);
    const double magnitude = std::exp2(-30.0 + 45.0 * random_uniform(1, 0, block));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = bf16_round(static_cast<float>(random_normal(2, block, i) * magnitude));
      if (random_bits(3, block, i) % 8 == 0) x[i] = 0;
    }
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));

    const auto ceil_power = [](float t) {
      int exponent = 0;
      const double mantissa = std::frexp(t, &exponent);
      return std::ldexp(1.0, mantissa == 0.5 ? exponent - 1 : exponent);
    };
    const Packed p8 = pack8(x);
    const double s8 = ceil_power(std::max(largest, 1e-4f) * static_cast<float>(1.0 / 448));
    ASSERT_EQ(e8m0_decode(p8.scales[0]), s8);
    const Packed index = pack4_index(x);
    const double s4 = ceil_power(std::max(largest, 6 * 0x1p-126f) * static_cast<float>(1.0 / 6));
    ASSERT_EQ(e8m0_decode(index.scales[0]), s4);
    const Packed main = pack4_main(x);
    for (size_t i = 0; i < x.size(); ++i) {
      // Scales are rounded up, so nothing clips, and the error is at most half the largest step.
      ASSERT_LE(std::fabs(x[i]) / s8, 448);
      ASSERT_EQ(p8.codes[i], e4m3_encode(static_cast<float>(x[i] / s8)));
      ASSERT_EQ(unpacked(index.codes)[i], e2m1_encode(static_cast<float>(x[i] / s4)));
      const float s = e4m3_decode(main.scales[i / 16]);
      ASSERT_GT(s, 0);
      ASSERT_EQ(unpacked(main.codes)[i], e2m1_encode(x[i] / s));
    }
    for (const Packed& p : {p8, index, main}) {
      for (const float v : p.values) ASSERT_EQ(bf16_round(v), v);
    }
  }
}

// Values at the floors: zeros keep their sign, and a scale never is zero.
// One scale for all of a row: the smallest power of two that keeps its largest magnitude within 448.
TEST(Quantize, RowsOfTheFp8IndexPlane) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<float> x(128), back(128);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = bf16_round(static_cast<float>(random_normal(seed, 0, i)) *
                        std::ldexp(1.0f, static_cast<int>(seed % 40) - 20));
    }
    std::vector<uint8_t> codes(128);
    const uint8_t scale = quantize8_row(x.data(), 128, codes.data());
    float amax = 1e-4f;
    for (const float v : x) amax = std::max(amax, std::fabs(v));
    const float unit = e8m0_decode(scale);
    EXPECT_LE(amax, 448 * unit);
    EXPECT_GT(amax, 224 * unit);
    dequantize8_row(codes.data(), scale, 128, back.data());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(back[i], e4m3_decode(e4m3_encode(x[i] / unit)) * unit);
      EXPECT_LE(std::fabs(back[i] - x[i]), std::max(std::fabs(x[i]) * 0x1p-4f, unit * 0x1p-10f));
    }
  }
  const std::vector<float> zeros(32, 0.0f);
  std::vector<uint8_t> codes(32, 1);
  EXPECT_EQ(quantize8_row(zeros.data(), 32, codes.data()), 127 - 22);  // 1e-4 / 448 from below
  EXPECT_EQ(codes, std::vector<uint8_t>(32, 0));
}

TEST(Quantize, ZerosAndFloors) {
  std::vector<float> x(32, 0.0f);
  x[3] = -0.0f;
  for (const auto& pack : {pack8, pack4_index, pack4_main}) {
    const Packed p = pack(x);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(p.values[i], 0.0f);
      EXPECT_EQ(std::signbit(p.values[i]), i == 3);
    }
  }
  EXPECT_EQ(pack8(x).scales[0], 127 - 22);
  EXPECT_EQ(pack4_index(x).scales[0], 1);  // 2^-126
  EXPECT_EQ(pack4_main(x).scales[0], 1);   // 2^-9, the smallest E4M3
}

// A scale of QDQ4_16 may be rounded down: then the largest value is clipped to 6 steps.
TEST(Quantize4Main, ClipsWhenTheScaleIsRoundedDown) {
  std::vector<float> x(16, 0.0f);
  x[0] = 6.34375f;  // a / 6 = 1.0573 -> scale 1
  x[1] = -6.34375f;
  const Packed p = pack4_main(x);
  EXPECT_EQ(p.scales[0], e4m3_encode(1.0f));
  EXPECT_EQ(p.values[0], 6.0f);
  EXPECT_EQ(p.values[1], -6.0f);
}

// The largest scale is 448: values above 6 * 448 saturate.
TEST(Quantize4Main, LargeValuesSaturate) {
  std::vector<float> x(16, 0.0f);
  x[0] = bf16_round(1e6f);
  const Packed p = pack4_main(x);
  EXPECT_EQ(p.scales[0], 0x7e);
  EXPECT_EQ(p.values[0], 6.0f * 448.0f);
}

// Packing values that are on the grid again: QDQ8 and QDQ4_32 keep them, QDQ4_16 does not where its scale is subnormal
// (spec/model.md 6.10). This is why rows are packed once.
TEST(Quantize, SecondPass) {
  for (uint64_t block = 0; block < 2000; ++block) {
    std::vector<float> x(32);
    const double magnitude = std::exp2(-12.0 + 20.0 * random_uniform(4, 0, block));
    for (size_t i = 0; i < x.size(); ++i) x[i] = bf16_round(static_cast<float>(random_normal(5, block, i) * magnitude));
    for (const auto& pack : {pack8, pack4_index}) {
      const Packed once = pack(x);
      ASSERT_EQ(pack(once.values).values, once.values);
    }
  }
  std::vector<float> x(16, 0.0f);
  x[0] = bf16_round(0.0190f);
  const Packed once = pack4_main(x);
  EXPECT_NE(pack4_main(once.values).values, once.values);
}

}  // namespace
}  // namespace folio
