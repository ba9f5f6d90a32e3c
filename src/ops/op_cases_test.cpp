// The machinery of op_cases.h: random tensors, comparison and the row law, with tests of the checkers themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "ops/op_cases.h"

namespace folio::op_cases {

float Data::normal() { return static_cast<float>(random_normal(seed_, 1, draws_++)); }
uint32_t Data::below(uint32_t n) { return static_cast<uint32_t>(random_bits(seed_, 2, draws_++) % n); }

std::vector<bf16> Data::activations(int64_t count, float scale) {
  std::vector<bf16> x;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t kind = below(100);
    float value = normal() * scale;
    if (kind == 0) value *= 30;
    if (kind == 1) value = 0.0f;
    if (kind == 2) value = -0.0f;
    x.push_back(to_bf16(value));
  }
  return x;
}

std::vector<float> Data::floats(int64_t count, float mean, float spread) {
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) x.push_back(mean + spread * normal());
  return x;
}

TensorView Data::add(DType dtype, Shape shape, std::vector<std::byte> bytes) {
  tensors_.push_back(std::make_unique<std::vector<std::byte>>(std::move(bytes)));
  return {tensors_.back()->data(), dtype, shape};
}

WeightViews Data::bf16_matrix(int64_t out, int64_t in, float spread) {
  const std::vector<bf16> x = activations(out * in, spread);
  const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
  return {add(DType::kBF16, {out, in}, {bytes, bytes + 2 * x.size()}), {}};
}

WeightViews Data::f32_matrix(int64_t out, int64_t in, float spread) {
  const std::vector<float> x = floats(out * in, 0, spread);
  const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
  return {add(DType::kF32, {out, in}, {bytes, bytes + 4 * x.size()}), {}};
}

WeightViews Data::vector(int64_t out, int64_t in, float mean, float spread) {
  const std::vector<float> x = floats(out * in, mean, spread);
  const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
  return {add(DType::kF32, out == 1 ? Shape{in} : Shape{out, in}, {bytes, bytes + 4 * x.size()}), {}};
}

namespace {

std::byte scale_byte(uint32_t draw, int exponent) {
  return static_cast<std::byte>(127 + exponent + static_cast<int>(draw) - 2);
}

}  // namespace

WeightViews Data::fp8(int64_t out, int64_t in, int exponent) {
  std::vector<std::byte> codes, scales;
  for (int64_t i = 0; i < out * in; ++i) {
    const uint32_t code = below(254);
    codes.push_back(static_cast<std::byte>(code < 127 ? code : code + 1));  // without the two NaN codes
  }
  const int64_t rows = (out + 31) / 32, blocks = (in + 31) / 32;
  for (int64_t i = 0; i < rows * blocks; ++i) scales.push_back(scale_byte(below(5), exponent));
  return {add(DType::kF8E4M3, {out, in}, std::move(codes)), add(DType::kF8E8M0, {rows, blocks}, std::move(scales))};
}

WeightViews Data::fp8_rows(int64_t out, int64_t in, int exponent) {
  WeightViews views = fp8(out, in, exponent);
  std::vector<std::byte> scales;
  for (int64_t i = 0; i < out * in / 32; ++i) scales.push_back(scale_byte(below(5), exponent));
  views.scale = add(DType::kF8E8M0, {out, in / 32}, std::move(scales));
  return views;
}

WeightViews Data::fp4(int64_t out, int64_t in, int exponent) {
  std::vector<std::byte> codes, scales;
  for (int64_t i = 0; i < out * in / 2; ++i) codes.push_back(static_cast<std::byte>(below(256)));
  for (int64_t i = 0; i < out * in / 32; ++i) scales.push_back(scale_byte(below(5), exponent));
  return {add(DType::kI8, {out, in / 2}, std::move(codes)), add(DType::kF8E8M0, {out, in / 32}, std::move(scales))};
}

std::vector<std::vector<float>> product_slack(const std::vector<float>& weights, const std::vector<float>& x,
                                              int64_t rows, int64_t out, int64_t in) {
  std::vector<std::vector<float>> slack;
  // Eight lanes, then a tree, is the shortest chain there is; the bound holds for one chain over everything.
  const double steps = static_cast<double>(in) / 8 + 8;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> row;
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < in; ++i) {
        sum += std::fabs(static_cast<double>(weights[static_cast<size_t>(o * in + i)]) *
                         static_cast<double>(x[static_cast<size_t>(r * in + i)]));
      }
      row.push_back(static_cast<float>(sum * steps * 0x1p-24) + 0x1p-120f);
    }
    slack.push_back(std::move(row));
  }
  return slack;
}

OpsLimits limits_of(const std::vector<Case>& cases) {
  OpsLimits all;
  for (const Case& c : cases) {
    const OpsLimits& l = c.limits;
    all.max_rows = std::max({all.max_rows, l.max_rows, static_cast<int64_t>(c.rows)});
    all.max_linear_in = std::max(all.max_linear_in, l.max_linear_in);
    all.hidden = std::max(all.hidden, l.hidden);
    all.expert_inner = std::max(all.expert_inner, l.expert_inner);
    all.max_experts = std::max(all.max_experts, l.max_experts);
    all.max_topk_experts = std::max(all.max_topk_experts, l.max_topk_experts);
    all.heads = std::max(all.heads, l.heads);
    all.head_dim = std::max(all.head_dim, l.head_dim);
    all.list_length = std::max(all.list_length, l.list_length);
    all.index_heads = std::max(all.index_heads, l.index_heads);
    all.index_dim = std::max(all.index_dim, l.index_dim);
    all.index_format = std::max(all.index_format, l.index_format);
    all.max_visible = std::max(all.max_visible, l.max_visible);
    all.vocab = std::max(all.vocab, l.vocab);
    all.max_drafting = std::max(all.max_drafting, l.max_drafting);
    all.markov_rank = std::max(all.markov_rank, l.markov_rank);
  }
  return all;
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto* list : {linear_cases, row_cases, expert_cases, attention_cases, index_cases, sample_cases, draft_cases}) {
    for (Case& c : list()) all.push_back(std::move(c));
  }
  return all;
}

namespace {

float element(Kind kind, const std::vector<std::byte>& row, size_t i) {
  if (kind == Kind::kBf16) {
    bf16 value;
    std::memcpy(&value, row.data() + 2 * i, sizeof value);
    return to_float(value);
  }
  float value;
  std::memcpy(&value, row.data() + 4 * i, sizeof value);
  return value;
}

// Distance between neighbours of x on the bf16 or fp32 grid.
float spacing(Kind kind, float x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0f, std::max(exponent, -120) - (kind == Kind::kBf16 ? 8 : 24));
}

std::string compare_row(const Output& expected, const Output& actual, size_t r) {
  const size_t width = expected.rows[r].size() / (expected.kind == Kind::kBf16 ? 2 : 4);
  size_t beyond = 0, worst = 0;
  double error = 0, norm = 0, most = -1;
  for (size_t i = 0; i < width; ++i) {
    const float a = element(expected.kind, expected.rows[r], i), b = element(expected.kind, actual.rows[r], i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) {
      norm += static_cast<double>(a) * static_cast<double>(a);
      continue;
    }
    const double slack = expected.slack.empty() ? 0.0 : static_cast<double>(expected.slack[r][i]);
    // A sum on the other side of a tie rounds to the neighbour; four ulps for fp32 elementary functions.
    const double unit = static_cast<double>(spacing(expected.kind, std::max(std::fabs(a), std::fabs(b))));
    const double allowed = slack + (expected.kind == Kind::kBf16 ? 1.0001 : 4.0) * unit;
    const double off = std::fabs(static_cast<double>(a) - static_cast<double>(b));
    error += off * off;
    norm += static_cast<double>(a) * static_cast<double>(a);
    if (!(off <= allowed)) {
      ++beyond;
      if (!(off - allowed <= most)) {
        most = off - allowed;
        worst = i;
      }
    }
  }
  if (static_cast<double>(beyond) > expected.flips * static_cast<double>(width)) {
    return concat(beyond, " of ", width, " elements off; worst ", worst, ": expected ",
                  element(expected.kind, expected.rows[r], worst), " got ",
                  element(expected.kind, actual.rows[r], worst), " slack ",
                  expected.slack.empty() ? 0.0f : expected.slack[r][worst]);
  }
  if (beyond > 0 && !(std::sqrt(error) <= expected.flip_l2 * std::sqrt(norm))) {
    return concat("relative L2 difference ", std::sqrt(error / norm), ", allowed ", expected.flip_l2);
  }
  return "";
}

std::vector<int32_t> identity(int32_t rows) {
  std::vector<int32_t> list(static_cast<size_t>(rows));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

}  // namespace

std::string check_close(const Outputs& expected, const Outputs& actual) {
  if (expected.size() != actual.size()) return "different numbers of outputs";
  for (size_t o = 0; o < expected.size(); ++o) {
    const Output &a = expected[o], &b = actual[o];
    if (a.rows.size() != b.rows.size()) return a.name + ": different numbers of rows";
    for (size_t r = 0; r < a.rows.size(); ++r) {
      if (a.kind == Kind::kDecision || a.rows[r] == b.rows[r]) continue;
      std::string problem = "bytes differ";
      if (a.kind == Kind::kBf16 || a.kind == Kind::kF32) problem = compare_row(a, b, r);
      if (!problem.empty()) return concat(a.name, " row ", r, ": ", problem);
    }
  }
  return "";
}

std::string check_row_law(int32_t rows, const std::vector<std::function<Outputs(const std::vector<int32_t>&)>>& runs,
                          uint64_t seed) {
  const Outputs whole = runs.front()(identity(rows));
  uint64_t draws = 0;
  const auto below = [&](size_t n) { return random_bits(seed, 7, draws++) % n; };
  std::vector<std::vector<int32_t>> lists = {identity(rows), {0}, {rows - 1}};
  for (int round = 0; round < 4; ++round) {
    std::vector<int32_t> list = identity(rows);
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
    list.resize(1 + below(list.size()));
    lists.push_back(list);
    lists.push_back({static_cast<int32_t>(below(static_cast<size_t>(rows)))});
  }
  for (size_t run = 0; run < runs.size(); ++run) {
    for (const std::vector<int32_t>& list : lists) {
      const Outputs part = runs[run](list);
      for (size_t o = 0; o < part.size(); ++o) {
        for (size_t i = 0; i < list.size(); ++i) {
          const auto row = static_cast<size_t>(list[i]);
          if (part[o].rows[i] == whole[o].rows[row]) continue;
          return concat(whole[o].name, ": row ", row, " at place ", i, " of ", list.size(), " rows, run ", run,
                        ", has other bits than in the full batch");
        }
      }
    }
  }
  return "";
}

namespace {

// A sum cut by the size of the batch: what the row law forbids.
Outputs split_by_batch(const std::vector<float>& x, int64_t width, const std::vector<int32_t>& rows) {
  std::vector<float> sums;
  for (int32_t r : rows) {
    const auto parts = static_cast<int64_t>(rows.size() > 4 ? 4 : 1);
    float total = 0;
    for (int64_t p = 0; p < parts; ++p) {
      float part = 0;
      for (int64_t i = width * p / parts; i < width * (p + 1) / parts; ++i)
        part += x[static_cast<size_t>(r * width + i)];
      total += part;
    }
    sums.push_back(total);
  }
  return {output("sum", Kind::kF32, sums, 1)};
}

TEST(OpCases, RowLawCheckerCatchesAReductionSplitByBatch) {
  Data data(1);
  const std::vector<float> x = data.floats(17 * 300, 0, 1);
  EXPECT_NE("", check_row_law(17, {[&](const auto& rows) { return split_by_batch(x, 300, rows); }}, 1));
  EXPECT_EQ("", check_row_law(4, {[&](const auto& rows) { return split_by_batch(x, 300, rows); }}, 1));
}

TEST(OpCases, CheckCloseSeesOneWrongElement) {
  Data data(2);
  std::vector<bf16> x = data.activations(3 * 64);
  const Outputs a = {output("x", Kind::kBf16, x, 64)};
  EXPECT_EQ("", check_close(a, a));
  x[100].bits = static_cast<uint16_t>(x[100].bits ^ 1);
  EXPECT_EQ("", check_close(a, {output("x", Kind::kBf16, x, 64)}));  // a neighbour
  x[100].bits = static_cast<uint16_t>(x[100].bits ^ 8);
  EXPECT_NE("", check_close(a, {output("x", Kind::kBf16, x, 64)}));
}

}  // namespace
}  // namespace folio::op_cases
