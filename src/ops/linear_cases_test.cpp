// Cases of linears (op_cases.h).
#include "numerics/fp8.h"
#include "numerics/quantize.h"
#include "ops/op_cases.h"
#include "ops/ref/host_weights.h"

namespace folio::op_cases {
namespace {

std::vector<float> widened(const std::vector<bf16>& x) {
  std::vector<float> y;
  for (bf16 v : x) y.push_back(to_float(v));
  return y;
}

std::vector<float> dequantized(WeightKind kind, const WeightViews& views) {
  const std::unique_ptr<HostWeight> weight = make_host_weight(kind, views);
  std::vector<float> w(static_cast<size_t>(weight->out() * weight->in()));
  for (int64_t o = 0; o < weight->out(); ++o) dequantize_weight_row(*weight, o, w.data() + o * weight->in());
  return w;
}

struct LinearShape {
  const char* name;
  int64_t rows, out, in;
};

// The presets' shapes and some that fit no tile.
constexpr LinearShape kShapes[] = {
    {"nano_wq_b", 5, 512, 64},    {"nano_w2", 70, 128, 64},         {"odd_out", 7, 37, 96},
    {"one_output", 13, 1, 32},    {"heads_wkv", 33, 512, 256},      {"bench_wq_a", 70, 384, 1024},
    {"bench_wq_b", 10, 512, 384}, {"long_rows", 25, 72, 2304 + 32}, {"engram", 9, 40, 6144},
};

Case linear_case(const LinearShape& shape, WeightKind kind, bool f32_out) {
  Case c;
  c.name = std::string(kind == WeightKind::kFp8 ? "quantized_linear_"
                       : f32_out                ? "linear_f32_"
                                                : "linear_") +
           shape.name;
  c.rows = static_cast<int32_t>(shape.rows);
  c.limits.max_rows = shape.rows;
  c.limits.max_linear_in = shape.in;
  c.prepare = [shape, kind, f32_out](Ops& ops) {
    auto data = std::make_shared<Data>(static_cast<uint64_t>(shape.in * 1000 + shape.out));
    const WeightViews views =
        kind == WeightKind::kFp8 ? data->fp8(shape.out, shape.in) : data->bf16_matrix(shape.out, shape.in, 0.05f);
    const std::vector<bf16> x = data->activations(shape.rows * shape.in);
    const auto slack = product_slack(dequantized(kind, views), widened(x), shape.rows, shape.out, shape.in);
    std::shared_ptr<const Weight> weight = ops.prepare(kind, views);
    return [=, &ops](const std::vector<int32_t>& rows) {
      const std::vector<bf16> chosen = choose(x, rows, shape.in);
      const auto count = static_cast<int64_t>(rows.size());
      std::vector<bf16> y(static_cast<size_t>(f32_out ? 0 : count * shape.out));
      std::vector<float> y32(static_cast<size_t>(f32_out ? count * shape.out : 0));
      LinearArgs args;
      args.weight = weight.get();
      args.x = chosen.data();
      args.rows = count;
      if (f32_out) {
        args.out_f32 = y32.data();
      } else {
        args.out = y.data();
      }
      if (kind == WeightKind::kFp8) {
        ops.quantized_linear(args);
      } else {
        ops.linear(args);
      }
      Output out = f32_out ? output("y", Kind::kF32, y32, shape.out) : output("y", Kind::kBf16, y, shape.out);
      out.slack = slack;
      static_cast<void>(data);
      return Outputs{out};
    };
  };
  return c;
}

Case grouped_case(const char* name, int64_t rows, int64_t groups, int64_t rank, int64_t in) {
  Case c;
  c.name = std::string("grouped_linear_") + name;
  c.rows = static_cast<int32_t>(rows);
  c.limits.max_rows = rows;
  c.limits.heads = static_cast<int32_t>(groups);
  c.limits.head_dim = static_cast<int32_t>(in);
  c.prepare = [=](Ops& ops) {
    auto data = std::make_shared<Data>(static_cast<uint64_t>(in * 100 + rank));
    const WeightViews views = data->fp8(groups * rank, in);
    const std::vector<bf16> x = data->activations(rows * groups * in);
    const std::vector<float> w = dequantized(WeightKind::kFp8, views), wide = widened(x);
    std::vector<std::vector<float>> slack(static_cast<size_t>(rows));
    for (int64_t g = 0; g < groups; ++g) {
      std::vector<float> part;
      for (int64_t r = 0; r < rows; ++r) {
        part.insert(part.end(), wide.begin() + (r * groups + g) * in, wide.begin() + (r * groups + g + 1) * in);
      }
      const std::vector<float> rows_of_group(w.begin() + g * rank * in, w.begin() + (g + 1) * rank * in);
      const auto bounds = product_slack(rows_of_group, part, rows, rank, in);
      for (size_t r = 0; r < bounds.size(); ++r) slack[r].insert(slack[r].end(), bounds[r].begin(), bounds[r].end());
    }
    std::shared_ptr<const Weight> weight = ops.prepare(WeightKind::kFp8, views);
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      const std::vector<bf16> chosen = choose(x, chosen_rows, groups * in);
      std::vector<bf16> y(chosen_rows.size() * static_cast<size_t>(groups * rank));
      GroupedLinearArgs args;
      args.weight = weight.get();
      args.groups = groups;
      args.x = chosen.data();
      args.rows = static_cast<int64_t>(chosen_rows.size());
      args.out = y.data();
      ops.grouped_linear(args);
      Output out = output("y", Kind::kBf16, y, groups * rank);
      out.slack = slack;
      static_cast<void>(data);
      return Outputs{out};
    };
  };
  return c;
}

}  // namespace

std::vector<Case> linear_cases() {
  std::vector<Case> cases;
  for (const LinearShape& shape : kShapes) {
    cases.push_back(linear_case(shape, WeightKind::kFp8, false));
    cases.push_back(linear_case(shape, WeightKind::kBf16, false));
    cases.push_back(linear_case(shape, WeightKind::kBf16, true));
  }
  cases.push_back(linear_case({"unaligned_in", 11, 50, 41}, WeightKind::kBf16, false));
  cases.push_back(linear_case({"unaligned_in", 2, 50, 173}, WeightKind::kBf16, true));
  cases.push_back(grouped_case("nano", 9, 4, 32, 128));
  cases.push_back(grouped_case("heads", 5, 8, 64, 1024));
  cases.push_back(grouped_case("odd_rank", 8, 3, 20, 64));
  return cases;
}

}  // namespace folio::op_cases
