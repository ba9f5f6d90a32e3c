#include "ops/ref/host_weights.h"

#include <cstring>

#include "base/error.h"
#include "numerics/fp4.h"
#include "numerics/fp8.h"

namespace folio {
namespace {

// The view's elements as T: in place when aligned, else copied into `owned`.
template <typename T>
const T* alias_or_copy(const TensorView& view, std::vector<std::byte>& owned) {
  if (reinterpret_cast<uintptr_t>(view.data) % alignof(T) == 0) return view.as<T>();
  owned.assign(view.data, view.data + view.bytes());
  return reinterpret_cast<const T*>(owned.data());
}

HostFp4 fp4(const WeightViews& views) { return {views.weight.as<uint8_t>(), views.scale.as<uint8_t>()}; }

}  // namespace

const HostWeight& host(const Weight* weight) {
  FOLIO_CHECK(weight != nullptr && weight->kind() != WeightKind::kExperts);
  return static_cast<const HostWeight&>(*weight);
}

const HostExperts& host_experts(const Weight* weight) {
  FOLIO_CHECK(weight != nullptr && weight->kind() == WeightKind::kExperts);
  return static_cast<const HostExperts&>(*weight);
}

std::unique_ptr<HostWeight> make_host_weight(WeightKind kind, const WeightViews& views) {
  const TensorView& view = views.weight;
  const int rank = view.shape.rank();
  FOLIO_CHECK(rank == 1 || rank == 2, view.shape.to_string());
  const int64_t in = view.shape[rank - 1];
  auto weight = std::make_unique<HostWeight>(kind, rank == 2 ? view.shape[0] : 1, in);
  switch (kind) {
    case WeightKind::kVector: {
      const int64_t count = view.shape.elements();
      weight->owned.resize(static_cast<size_t>(count) * sizeof(float));
      auto* floats = reinterpret_cast<float*>(weight->owned.data());
      if (view.dtype == DType::kF32) {
        std::memcpy(floats, view.data, weight->owned.size());
      } else {
        FOLIO_CHECK(view.dtype == DType::kBF16, dtype_name(view.dtype));
        for (int64_t i = 0; i < count; ++i) {
          bf16 value;
          std::memcpy(&value, view.data + 2 * i, sizeof value);
          floats[i] = to_float(value);
        }
      }
      weight->floats = floats;
      break;
    }
    case WeightKind::kF32:
      FOLIO_CHECK(view.dtype == DType::kF32, dtype_name(view.dtype));
      weight->floats = alias_or_copy<float>(view, weight->owned);
      break;
    case WeightKind::kBf16:
      FOLIO_CHECK(view.dtype == DType::kBF16, dtype_name(view.dtype));
      weight->values = alias_or_copy<bf16>(view, weight->owned);
      break;
    case WeightKind::kFp8:
    case WeightKind::kFp8Rows:
      FOLIO_CHECK(view.dtype == DType::kF8E4M3 && views.scale.dtype == DType::kF8E8M0);
      weight->codes = view.as<uint8_t>();
      weight->scales = views.scale.as<uint8_t>();
      weight->scale_stride = (in + 31) / 32;
      break;
    case WeightKind::kExperts:
      FOLIO_CHECK(false, "experts have their own builder");
  }
  return weight;
}

std::unique_ptr<HostExperts> make_host_experts(const std::vector<ExpertViews>& routed, const ExpertViews& shared) {
  auto experts = std::make_unique<HostExperts>(shared.w1.weight.shape[0], shared.w1.weight.shape[1]);
  for (const ExpertViews& views : routed) experts->routed.push_back({fp4(views.w1), fp4(views.w3), fp4(views.w2)});
  experts->shared_w1 = make_host_weight(WeightKind::kFp8, shared.w1);
  experts->shared_w3 = make_host_weight(WeightKind::kFp8, shared.w3);
  experts->shared_w2 = make_host_weight(WeightKind::kFp8, shared.w2);
  return experts;
}

void dequantize_weight_row(const HostWeight& weight, int64_t row, float* out) {
  const int64_t in = weight.in();
  if (weight.kind() == WeightKind::kBf16) {
    for (int64_t i = 0; i < in; ++i) out[i] = to_float(weight.values[row * in + i]);
    return;
  }
  const int64_t scale_row = weight.kind() == WeightKind::kFp8Rows ? row : row / 32;
  const uint8_t* scales = weight.scales + scale_row * weight.scale_stride;
  for (int64_t i = 0; i < in; ++i) out[i] = e4m3_decode(weight.codes[row * in + i]) * e8m0_decode(scales[i / 32]);
}

void dequantize_fp4_row(const HostFp4& weight, int64_t row, int64_t in, float* out) {
  const uint8_t* codes = weight.codes + row * in / 2;
  const uint8_t* scales = weight.scales + row * in / 32;
  for (int64_t i = 0; i < in; ++i) out[i] = e2m1_decode(fp4_code(codes, i)) * e8m0_decode(scales[i / 32]);
}

}  // namespace folio
