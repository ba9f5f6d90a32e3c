#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/fp8.h"
#include "ops/cpu/cpu_test.h"
#include "ops/ref/host_weights.h"

namespace folio {
namespace {

using namespace op_cases;

std::vector<float> run_linear(Ops& ops, const WeightViews& views, const std::vector<bf16>& x, int64_t rows) {
  const WeightHandle weight = ops.prepare(WeightKind::kFp8, views);
  std::vector<float> y(static_cast<size_t>(rows * weight->out()));
  LinearArgs args;
  args.weight = weight.get();
  args.x = x.data();
  args.rows = rows;
  args.out_f32 = y.data();
  ops.quantized_linear(args);
  return y;
}

// Scales at both ends of their range, alone and mixed, and NaN codes: the reference's values on every ISA.
TEST(CpuLinear, ExtremeScales) {
  const int64_t rows = 9, out = 40, in = 160;
  for (int scale : {0, 1, 26, 63, 64, 127, 190, 191, 240}) {
    for (bool mixed : {false, true}) {
      Data data(static_cast<uint64_t>(scale));
      WeightViews views = data.fp8(out, in, 0);
      std::byte* scales = data.bytes(views.scale);
      for (int64_t i = 0; i < views.scale.bytes(); ++i) {
        if (!mixed || i % 3 == 0) scales[i] = static_cast<std::byte>(scale);
      }
      const std::vector<bf16> x = data.activations(rows * in, scale > 127 ? 1e-3f : 1e3f);
      const std::unique_ptr<Ops> ref = make_reference_ops();
      const std::vector<float> expected = run_linear(*ref, views, x, rows);
      for (const std::string& isa : test_isas()) {
        std::unique_ptr<Ops> ops = make_cpu_ops({isa, 2});
        OpsLimits limits;
        limits.max_rows = rows;
        limits.max_linear_in = in;
        ops->reserve(limits);
        const std::vector<float> y = run_linear(*ops, views, x, rows);
        float top = 0;
        for (float v : expected) top = std::max(top, std::fabs(v));
        for (size_t i = 0; i < y.size(); ++i) {
          if (std::isinf(expected[i])) {
            EXPECT_EQ(y[i], expected[i]) << isa << " " << scale;
          } else {
            EXPECT_NEAR(y[i], expected[i], top * 1e-5f) << isa << " scale " << scale << " mixed " << mixed;
          }
        }
      }
    }
  }
}

// NaN in a weight, in a scale or in a row goes to the outputs it touches and nowhere else.
TEST(CpuLinear, NanSpreadsWhereItMust) {
  const int64_t rows = 8, out = 64, in = 128;
  for (int where : {0, 1, 2, 3}) {
    Data data(5);
    WeightViews views = data.fp8(out, in, 0);
    std::vector<bf16> x = data.activations(rows * in);
    if (where == 0) data.bytes(views.weight)[3 * in + 70] = std::byte{0x7f};
    if (where == 1) data.bytes(views.weight)[3 * in + 127] = std::byte{0xff};
    if (where == 2) data.bytes(views.scale)[in / 32 + 1] = std::byte{255};
    if (where == 3) x[static_cast<size_t>(2 * in + 5)] = to_bf16(std::numeric_limits<float>::infinity());
    const std::unique_ptr<Ops> ref = make_reference_ops();
    const std::vector<float> expected = run_linear(*ref, views, x, rows);
    for (const std::string& isa : test_isas()) {
      for (int64_t used : {int64_t{3}, rows}) {  // few rows and many: two kernels
        std::unique_ptr<Ops> ops = make_cpu_ops({isa, 1});
        OpsLimits limits;
        limits.max_rows = rows;
        limits.max_linear_in = in;
        ops->reserve(limits);
        const std::vector<float> y = run_linear(*ops, views, x, used);
        for (size_t i = 0; i < y.size(); ++i) {
          EXPECT_EQ(std::isnan(y[i]), std::isnan(expected[i])) << isa << " case " << where << " element " << i;
        }
      }
    }
  }
}

// A block of zeros may have any scale but NaN without costing the fast path or the value.
TEST(CpuLinear, ZeroBlocksMayHaveAnyScale) {
  const int64_t rows = 8, out = 32, in = 128;
  Data data(6);
  WeightViews views = data.fp8(out, in, 0);
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 32; i < 64; ++i) data.bytes(views.weight)[o * in + i] = o % 2 ? std::byte{0} : std::byte{0x80};
  }
  const std::vector<bf16> x = data.activations(rows * in);
  for (int scale : {0, 200, 254}) {
    data.bytes(views.scale)[1] = static_cast<std::byte>(scale);
    const std::unique_ptr<Ops> ref = make_reference_ops();
    const std::vector<float> expected = run_linear(*ref, views, x, rows);
    for (const std::string& isa : test_isas()) {
      std::unique_ptr<Ops> ops = make_cpu_ops({isa, 1});
      OpsLimits limits;
      limits.max_rows = rows;
      limits.max_linear_in = in;
      ops->reserve(limits);
      const std::vector<float> y = run_linear(*ops, views, x, rows);
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_NEAR(y[i], expected[i], 1e-4f * (1 + std::fabs(expected[i]))) << isa << " " << scale;
      }
    }
  }
}

// The experts' exact path: one projection of one expert with scales that no kernel can fold.
TEST(CpuExperts, ExtremeScalesOfOneExpert) {
  const int64_t rows = 9, hidden = 64, inner = 96;
  for (int projection : {0, 1, 2}) {
    for (int scale : {0, 40, 210}) {
      Data data(7);
      std::vector<ExpertViews> routed;
      for (int e = 0; e < 3; ++e) {
        routed.push_back({data.fp4(inner, hidden), data.fp4(inner, hidden), data.fp4(hidden, inner)});
      }
      const ExpertViews shared = {data.fp8(inner, hidden, -12), data.fp8(inner, hidden, -12),
                                  data.fp8(hidden, inner, -12)};
      const WeightViews* views[] = {&routed[1].w1, &routed[1].w3, &routed[1].w2};
      data.bytes(views[projection]->scale)[5] = static_cast<std::byte>(scale);
      const std::vector<bf16> x = data.activations(rows * hidden, scale > 127 ? 1e-4f : 1.0f);
      std::vector<int32_t> ids;
      for (int64_t r = 0; r < rows; ++r) {
        ids.push_back(r % 2 == 0 ? 0 : 1);
        ids.push_back(2);
      }
      const std::vector<float> weights(ids.size(), 0.5f);
      const auto run = [&](Ops& ops) {
        OpsLimits limits;
        limits.max_rows = rows;
        limits.hidden = hidden;
        limits.expert_inner = inner;
        limits.max_experts = 3;
        limits.max_topk_experts = 2;
        ops.reserve(limits);
        const WeightHandle experts = ops.prepare_experts(routed, shared);
        std::vector<bf16> y(x.size());
        ops.experts({experts.get(), x.data(), ids.data(), weights.data(), rows, 2, 10.0f, y.data()});
        return y;
      };
      const std::vector<bf16> expected = run(*make_reference_ops());
      for (const std::string& isa : test_isas()) {
        const std::vector<bf16> y = run(*make_cpu_ops({isa, 2}));
        for (size_t i = 0; i < y.size(); ++i) {
          const float a = to_float(expected[i]), b = to_float(y[i]);
          if (std::isnan(a) && std::isnan(b)) continue;
          EXPECT_TRUE(a == b || std::fabs(a - b) <= 0.02f * std::fabs(a) + 1e-3f)
              << isa << " projection " << projection << " scale " << scale << ": " << a << " " << b;
        }
      }
    }
  }
}

}  // namespace
}  // namespace folio
