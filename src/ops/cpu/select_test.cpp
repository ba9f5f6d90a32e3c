#include "ops/cpu/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "numerics/bf16.h"

namespace folio::cpu {
namespace {

std::vector<int32_t> plain(const std::vector<float>& values, int64_t k) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(std::min(order.size(), static_cast<size_t>(k)));
  std::erase_if(order,
                [&](int32_t i) { return values[static_cast<size_t>(i)] == -std::numeric_limits<float>::infinity(); });
  std::sort(order.begin(), order.end());
  return order;
}

template <typename Score>
Score bits_of(float value) {
  if constexpr (sizeof(Score) == 2) return to_bf16(value).bits;
  Score bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <typename Score>
void expect_a_stable_sort() {
  uint64_t draws = 0;
  const auto below = [&](uint64_t n) { return random_bits(3, 0, draws++) % n; };
  for (int round = 0; round < 400; ++round) {
    const auto n = static_cast<size_t>(below(300));
    const auto k = static_cast<int64_t>(below(n + 4));
    const uint64_t kinds = 1 + below(40);  // few different values: many ties
    std::vector<float> values;
    std::vector<Score> scores;
    for (size_t i = 0; i < n; ++i) {
      float value = static_cast<float>(below(kinds)) - static_cast<float>(kinds) / 2;
      if (below(20) == 0) value = -0.0f;
      if (below(20) == 0) value = -std::numeric_limits<float>::infinity();
      if (below(50) == 0) value = std::numeric_limits<float>::infinity();
      if (below(3) == 0) value *= 1e-3f;
      // Scores that differ in their last byte only.
      if (sizeof(Score) == 4 && below(4) == 0) value += static_cast<float>(below(3)) * 0x1p-20f;
      scores.push_back(bits_of<Score>(value));
      values.push_back(sizeof(Score) == 2 ? bf16_round(value) : value);
    }
    order_scores(scores.data(), static_cast<int64_t>(n));
    std::vector<int32_t> out(static_cast<size_t>(k) + 1, -5);
    const int64_t found = select_largest(scores.data(), static_cast<int64_t>(n), k, out.data());
    EXPECT_EQ(out[static_cast<size_t>(k)], -5);
    out.resize(static_cast<size_t>(found));
    EXPECT_EQ(out, plain(values, k)) << "n " << n << " k " << k;
  }
}

TEST(Select, EqualsAStableSort) {
  expect_a_stable_sort<uint16_t>();
  expect_a_stable_sort<uint32_t>();
}

}  // namespace
}  // namespace folio::cpu
