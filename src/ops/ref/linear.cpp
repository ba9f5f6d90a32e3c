#include <vector>

#include "base/error.h"
#include "numerics/quantize.h"
#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/scalar.h"

namespace folio {
namespace {

void store(const LinearArgs& args, int64_t index, float y) {
  if (args.out != nullptr) args.out[index] = to_bf16(y);
  if (args.out_f32 != nullptr) args.out_f32[index] = y;
}

// x rounded by QDQ8.
void round_activations(float* x, int64_t n) {
  std::vector<uint8_t> codes(static_cast<size_t>(n)), scales(static_cast<size_t>(n / kQuant8Group));
  quantize8(x, n, codes.data(), scales.data());
  dequantize8(codes.data(), scales.data(), n, x);
}

void matrix_product(const LinearArgs& args, bool rounded) {
  const HostWeight& weight = host(args.weight);
  const int64_t in = weight.in(), out = weight.out();
  std::vector<float> x(static_cast<size_t>(args.rows * in)), w(static_cast<size_t>(in));
  scalar::widen(args.x, args.rows * in, x.data());
  if (rounded) {
    for (int64_t r = 0; r < args.rows; ++r) round_activations(x.data() + r * in, in);
  }
  for (int64_t o = 0; o < out; ++o) {
    dequantize_weight_row(weight, o, w.data());
    for (int64_t r = 0; r < args.rows; ++r) store(args, r * out + o, scalar::dot(x.data() + r * in, w.data(), in));
  }
}

}  // namespace

WeightHandle ReferenceOps::prepare(WeightKind kind, const WeightViews& views) { return make_host_weight(kind, views); }

WeightHandle ReferenceOps::prepare_experts(const std::vector<ExpertViews>& routed, const ExpertViews& shared) {
  return make_host_experts(routed, shared);
}

void ReferenceOps::quantized_linear(const LinearArgs& args) {
  FOLIO_CHECK(args.weight->kind() == WeightKind::kFp8);
  matrix_product(args, true);
}

void ReferenceOps::linear(const LinearArgs& args) {
  FOLIO_CHECK(args.weight->kind() == WeightKind::kBf16);
  matrix_product(args, false);
}

void ReferenceOps::grouped_linear(const GroupedLinearArgs& args) {
  const HostWeight& weight = host(args.weight);
  const int64_t in = weight.in(), out = weight.out(), rank = out / args.groups;
  std::vector<float> x(static_cast<size_t>(in)), w(static_cast<size_t>(in));
  for (int64_t o = 0; o < out; ++o) {
    dequantize_weight_row(weight, o, w.data());
    for (int64_t r = 0; r < args.rows; ++r) {
      scalar::widen(args.x + (r * args.groups + o / rank) * in, in, x.data());
      args.out[r * out + o] = to_bf16(scalar::dot(x.data(), w.data(), in));
    }
  }
}

void ReferenceOps::rms_norm(const RmsNormArgs& args) {
  const float* weight = host(args.weight).floats;
  std::vector<float> x(static_cast<size_t>(args.cols));
  for (int64_t r = 0; r < args.rows; ++r) {
    scalar::widen(args.x + r * args.cols, args.cols, x.data());
    const float scale = scalar::rsqrt(scalar::mean_square(x.data(), args.cols) + args.eps);
    for (int64_t i = 0; i < args.cols; ++i) {
      args.out[r * args.cols + i] = to_bf16(weight[i] * (x[static_cast<size_t>(i)] * scale));
    }
  }
}

void ReferenceOps::scale(const ScaleArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) args.out[i] = to_bf16(to_float(args.x[i]) * args.scale);
}

}  // namespace folio
