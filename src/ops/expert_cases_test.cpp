// Cases of routing and experts (op_cases.h).
#include <algorithm>

#include "ops/op_cases.h"

namespace folio::op_cases {
namespace {

struct ExpertShape {
  const char* name;
  int64_t rows, hidden, inner;
  int32_t experts, k;
};

Case experts_case(const ExpertShape& shape) {
  Case c;
  c.name = std::string("experts_") + shape.name;
  c.rows = static_cast<int32_t>(shape.rows);
  c.limits.max_rows = shape.rows;
  c.limits.hidden = shape.hidden;
  c.limits.expert_inner = shape.inner;
  c.limits.max_experts = shape.experts;
  c.limits.max_topk_experts = shape.k;
  c.prepare = [shape](Ops& ops) {
    auto data = std::make_shared<Data>(static_cast<uint64_t>(shape.hidden + shape.rows));
    std::vector<ExpertViews> routed;
    for (int32_t e = 0; e < shape.experts; ++e) {
      routed.push_back({data->fp4(shape.inner, shape.hidden), data->fp4(shape.inner, shape.hidden),
                        data->fp4(shape.hidden, shape.inner)});
    }
    const ExpertViews shared = {data->fp8(shape.inner, shape.hidden, -12), data->fp8(shape.inner, shape.hidden, -12),
                                data->fp8(shape.hidden, shape.inner, -12)};
    std::shared_ptr<const Weight> experts = ops.prepare_experts(routed, shared);
    const std::vector<bf16> x = data->activations(shape.rows * shape.hidden);
    std::vector<int32_t> ids;
    std::vector<float> weights;
    for (int64_t r = 0; r < shape.rows; ++r) {
      std::vector<int32_t> row;
      while (row.size() < static_cast<size_t>(shape.k)) {
        // Low ids more often, so that experts have many rows, few and none.
        const auto id = static_cast<int32_t>(std::min(data->below(static_cast<uint32_t>(shape.experts)),
                                                      data->below(static_cast<uint32_t>(shape.experts))));
        if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
      }
      std::sort(row.begin(), row.end());
      ids.insert(ids.end(), row.begin(), row.end());
      for (int32_t i = 0; i < shape.k; ++i) weights.push_back(0.1f + static_cast<float>(data->below(100)) / 100);
    }
    return [=, &ops](const std::vector<int32_t>& rows) {
      const std::vector<bf16> chosen = choose(x, rows, shape.hidden);
      const std::vector<int32_t> chosen_ids = choose(ids, rows, shape.k);
      const std::vector<float> chosen_weights = choose(weights, rows, shape.k);
      std::vector<bf16> y(rows.size() * static_cast<size_t>(shape.hidden));
      ExpertsArgs args;
      args.experts = experts.get();
      args.x = chosen.data();
      args.ids = chosen_ids.data();
      args.weights = chosen_weights.data();
      args.rows = static_cast<int64_t>(rows.size());
      args.k = shape.k;
      args.limit = 10;
      args.out = y.data();
      ops.experts(args);
      Output out = output("y", Kind::kBf16, y, shape.hidden);
      // One flipped rounding of a w1 or w3 output moves an element of the SwiGLU product by a bf16 ulp and, at a tie of
      // the fp8 rounding, by one fp8 step: every output of that expert moves a little.
      out.flips = 1.0;
      out.flip_l2 = 0.004;
      static_cast<void>(data);
      return Outputs{out};
    };
  };
  return c;
}

}  // namespace

std::vector<Case> expert_cases() {
  std::vector<Case> cases;
  for (const ExpertShape& shape : {ExpertShape{"nano", 21, 128, 64, 16, 3}, ExpertShape{"mini", 40, 256, 128, 32, 4},
                                   ExpertShape{"odd", 12, 96, 160, 5, 2}, ExpertShape{"one", 9, 64, 32, 4, 1},
                                   ExpertShape{"bench", 8, 1024, 896, 2, 1}}) {
    cases.push_back(experts_case(shape));
  }
  return cases;
}

}  // namespace folio::op_cases
