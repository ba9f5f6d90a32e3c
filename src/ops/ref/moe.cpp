#include <algorithm>
#include <numeric>
#include <vector>

#include "numerics/quantize.h"
#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/scalar.h"

namespace folio {
namespace {

// x on the bf16 grid, rounded by QDQ8.
std::vector<float> rounded(const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<uint8_t> codes(x.size()), scales(x.size() / kQuant8Group);
  std::vector<float> out(x.size());
  quantize8(x.data(), n, codes.data(), scales.data());
  dequantize8(codes.data(), scales.data(), n, out.data());
  return out;
}

// y = bf(W x) with the row function `row(o, w)` writing row o of W.
template <typename Row>
std::vector<float> product(int64_t out, const std::vector<float>& x, const Row& row) {
  std::vector<float> y(static_cast<size_t>(out)), w(x.size());
  for (int64_t o = 0; o < out; ++o) {
    row(o, w.data());
    y[static_cast<size_t>(o)] = bf16_round(scalar::dot(x.data(), w.data(), static_cast<int64_t>(x.size())));
  }
  return y;
}

// bf(weight * silu(gate) * up) with the clamps of spec 7; weight 1 for the shared expert.
std::vector<float> swiglu(const std::vector<float>& gate, const std::vector<float>& up, float limit, float weight) {
  std::vector<float> v(gate.size());
  for (size_t i = 0; i < v.size(); ++i) {
    const float u = limit > 0 ? std::clamp(up[i], -limit, limit) : up[i];
    const float g = limit > 0 ? std::min(gate[i], limit) : gate[i];
    v[i] = bf16_round(weight * (scalar::silu(g) * u));
  }
  return v;
}

}  // namespace

void ReferenceOps::route(const RouteArgs& args) {
  const HostWeight& gate = host(args.gate);
  const int64_t experts = gate.out(), hidden = gate.in();
  std::vector<float> x(static_cast<size_t>(hidden)), w(static_cast<size_t>(hidden));
  std::vector<float> affinity(static_cast<size_t>(experts)), biased(static_cast<size_t>(experts));
  std::vector<int32_t> order(static_cast<size_t>(experts));
  for (int64_t r = 0; r < args.rows; ++r) {
    scalar::widen(args.x + r * hidden, hidden, x.data());
    const float* bias = host(args.image[r] ? args.bias_image : args.bias).floats;
    for (int64_t e = 0; e < experts; ++e) {
      dequantize_weight_row(gate, e, w.data());
      const float z = scalar::dot(x.data(), w.data(), hidden);
      const auto at = static_cast<size_t>(e);
      affinity[at] = std::sqrt(scalar::softplus(z));
      biased[at] = affinity[at] + bias[e];
    }
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return biased[static_cast<size_t>(a)] > biased[static_cast<size_t>(b)];
    });
    std::sort(order.begin(), order.begin() + args.k);
    double sum = 0;
    for (int32_t i = 0; i < args.k; ++i)
      sum += static_cast<double>(affinity[static_cast<size_t>(order[static_cast<size_t>(i)])]);
    for (int32_t i = 0; i < args.k; ++i) {
      const int32_t id = order[static_cast<size_t>(i)];
      float weight = affinity[static_cast<size_t>(id)];
      if (args.normalise && args.k > 1) weight /= static_cast<float>(sum) + 1e-20f;
      args.ids[r * args.k + i] = id;
      args.weights[r * args.k + i] = weight * args.scale;
    }
  }
}

void ReferenceOps::experts(const ExpertsArgs& args) {
  const HostExperts& all = host_experts(args.experts);
  const int64_t inner = all.out(), hidden = all.in();
  std::vector<float> x(static_cast<size_t>(hidden)), total(static_cast<size_t>(hidden));
  for (int64_t r = 0; r < args.rows; ++r) {
    scalar::widen(args.x + r * hidden, hidden, x.data());
    const std::vector<float> input = rounded(x);
    std::fill(total.begin(), total.end(), 0.0f);
    const auto add = [&](const auto& w1, const auto& w3, const auto& w2, float weight) {
      const std::vector<float> v = swiglu(product(inner, input, w1), product(inner, input, w3), args.limit, weight);
      const std::vector<float> y = product(hidden, rounded(v), w2);
      for (size_t d = 0; d < total.size(); ++d) total[d] += y[d];
    };
    for (int32_t i = 0; i < args.k; ++i) {
      const HostExpert& expert = all.routed[static_cast<size_t>(args.ids[r * args.k + i])];
      add([&](int64_t o, float* w) { dequantize_fp4_row(expert.w1, o, hidden, w); },
          [&](int64_t o, float* w) { dequantize_fp4_row(expert.w3, o, hidden, w); },
          [&](int64_t o, float* w) { dequantize_fp4_row(expert.w2, o, inner, w); }, args.weights[r * args.k + i]);
    }
    add([&](int64_t o, float* w) { dequantize_weight_row(host(all.shared_w1.get()), o, w); },
        [&](int64_t o, float* w) { dequantize_weight_row(host(all.shared_w3.get()), o, w); },
        [&](int64_t o, float* w) { dequantize_weight_row(host(all.shared_w2.get()), o, w); }, 1.0f);
    for (int64_t d = 0; d < hidden; ++d) args.out[r * hidden + d] = to_bf16(total[static_cast<size_t>(d)]);
  }
}

}  // namespace folio
