#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/scalar.h"

namespace folio {
namespace {

constexpr int32_t kMaxStreams = 8;

// Divides every row of c [n, n] by its sum plus eps, or every column.
void normalise(float* c, int32_t n, float eps, bool rows) {
  for (int32_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int32_t j = 0; j < n; ++j) sum += static_cast<double>(rows ? c[i * n + j] : c[j * n + i]);
    for (int32_t j = 0; j < n; ++j) (rows ? c[i * n + j] : c[j * n + i]) /= static_cast<float>(sum) + eps;
  }
}

// The Sinkhorn part: c holds the logits of comb and becomes comb (spec 4.3).
void sinkhorn(float* c, int32_t n, int32_t iterations, float eps) {
  for (int32_t i = 0; i < n; ++i) {
    float* row = c + i * n;
    const float top = *std::max_element(row, row + n);
    double sum = 0;
    for (int32_t j = 0; j < n; ++j) sum += static_cast<double>(row[j] = scalar::exp(row[j] - top));
    for (int32_t j = 0; j < n; ++j) row[j] = row[j] / static_cast<float>(sum) + eps;
  }
  normalise(c, n, eps, false);
  for (int32_t k = 1; k < iterations; ++k) {
    normalise(c, n, eps, true);
    normalise(c, n, eps, false);
  }
}

}  // namespace

void ReferenceOps::hyper_mix(const HyperMixArgs& args) {
  const int32_t s = args.num_streams;
  FOLIO_CHECK(s <= kMaxStreams);
  const int64_t width = s * args.hidden;
  const HostWeight& fn = host(args.fn);
  const float *scale = host(args.scale).floats, *base = host(args.base).floats;
  std::vector<float> z(static_cast<size_t>(width));
  float m[(2 + kMaxStreams) * kMaxStreams];
  for (int64_t r = 0; r < args.rows; ++r) {
    scalar::widen(args.streams + r * width, width, z.data());
    const float norm = scalar::rsqrt(scalar::mean_square(z.data(), width) + args.norm_eps);
    for (int32_t i = 0; i < (2 + s) * s; ++i) m[i] = scalar::dot(z.data(), fn.floats + i * width, width) * norm;
    for (int32_t i = 0; i < s; ++i) {
      args.pre[r * s + i] = scalar::sigmoid(m[i] * scale[0] + base[i]) + args.hc_eps;
      args.post[r * s + i] = 2.0f * scalar::sigmoid(m[s + i] * scale[1] + base[s + i]);
    }
    float* comb = args.comb + r * s * s;
    for (int32_t i = 0; i < s * s; ++i) comb[i] = m[2 * s + i] * scale[2] + base[2 * s + i];
    sinkhorn(comb, s, args.iterations, args.hc_eps);
  }
}

void ReferenceOps::hyper_collapse(const HyperCollapseArgs& args) {
  const int32_t s = args.num_streams;
  for (int64_t r = 0; r < args.rows; ++r) {
    const bf16* streams = args.streams + r * s * args.hidden;
    for (int64_t d = 0; d < args.hidden; ++d) {
      double sum = 0;
      for (int32_t i = 0; i < s; ++i)
        sum += static_cast<double>(args.mix[r * s + i] * to_float(streams[i * args.hidden + d]));
      args.out[r * args.hidden + d] = to_bf16(static_cast<float>(sum));
    }
  }
}

void ReferenceOps::stream_means(const StreamMeansArgs& args) {
  const int32_t s = args.num_streams;
  for (int64_t r = 0; r < args.rows; ++r) {
    const bf16* streams = args.streams + r * s * args.hidden;
    for (int64_t d = 0; d < args.hidden; ++d) {
      double sum = 0;
      for (int32_t i = 0; i < s; ++i) sum += static_cast<double>(to_float(streams[i * args.hidden + d]));
      args.out[r * args.out_stride + d] = to_bf16(static_cast<float>(sum) / static_cast<float>(s));
    }
  }
}

void ReferenceOps::hyper_expand(const HyperExpandArgs& args) {
  const int32_t s = args.num_streams;
  FOLIO_CHECK(s <= kMaxStreams);
  for (int64_t r = 0; r < args.rows; ++r) {
    bf16* streams = args.streams + r * s * args.hidden;
    const float *post = args.post + r * s, *comb = args.comb + r * s * s;
    for (int64_t d = 0; d < args.hidden; ++d) {
      const float y = to_float(args.y[r * args.hidden + d]);
      float x[kMaxStreams];
      for (int32_t i = 0; i < s; ++i) x[i] = to_float(streams[i * args.hidden + d]);
      for (int32_t j = 0; j < s; ++j) {
        double carried = 0;
        for (int32_t i = 0; i < s; ++i) carried += static_cast<double>(comb[i * s + j] * x[i]);
        streams[j * args.hidden + d] = to_bf16(post[j] * y + static_cast<float>(carried));
      }
    }
  }
}

}  // namespace folio
