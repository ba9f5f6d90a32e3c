// The vector functions of each ISA against double, through the kernels that expose them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/isa.h"
#include "ops/cpu/kernels.h"

namespace folio::cpu {
namespace {

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all = {&scalar_kernels()};
  for (Isa isa : available_isas()) {
    if (isa == Isa::kAvx2) all.push_back(&avx2_kernels());
    if (isa == Isa::kAvx512Bf16) all.push_back(&avx512bf16_kernels());
  }
  return all;
}

// Distance from the exact value in units of the last place of the result; 2^-149 below the normal numbers.
double ulps(float y, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::fabs(static_cast<double>(y) - exact) / unit;
}

TEST(CpuMath, ExpIsWithinOneUlp) {
  std::vector<float> x;
  for (int i = 0; i <= 400000; ++i) x.push_back(-104.0f * static_cast<float>(i) / 400000.0f);
  for (int i = 0; i < 1000; ++i) x.push_back(-std::ldexp(1.0f, -i % 60) * (1.0f + static_cast<float>(i) / 1000.0f));
  std::vector<float> y(x.size());
  for (const Kernels* kernels : all_kernels()) {
    kernels->weights(x.data(), static_cast<int64_t>(x.size()), 0.0f, 1.0f, y.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], std::exp(static_cast<double>(x[i]))));
    EXPECT_LE(worst, 1.0);
  }
}

TEST(CpuMath, AffinityIsWithinFourUlps) {
  std::vector<float> z;
  for (int i = -60000; i <= 60000; ++i) z.push_back(static_cast<float>(i) / 1000.0f);
  std::vector<float> y(z.size());
  for (const Kernels* kernels : all_kernels()) {
    kernels->affinity(z.data(), static_cast<int64_t>(z.size()), y.data());
    double worst = 0;
    for (size_t i = 0; i < z.size(); ++i) {
      const auto v = static_cast<double>(z[i]);
      worst = std::max(worst, ulps(y[i], std::sqrt(v > 20 ? v : std::log1p(std::exp(v)))));
    }
    EXPECT_LE(worst, 4.0);
  }
}

}  // namespace
}  // namespace folio::cpu
