#include <cmath>
#include <vector>

#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/scalar.h"

namespace folio {

void ReferenceOps::engram_gather(const EngramGatherArgs& args) {
  const HostWeight& table = host(args.table);
  const int64_t dim = table.in();
  std::vector<float> row(static_cast<size_t>(dim));
  for (int64_t i = 0; i < args.rows * args.columns; ++i) {
    dequantize_weight_row(table, args.table_rows[i], row.data());
    for (int64_t c = 0; c < dim; ++c) args.out[i * dim + c] = to_bf16(row[static_cast<size_t>(c)]);
  }
}

void ReferenceOps::engram_inject(const EngramInjectArgs& args) {
  const int64_t hidden = args.hidden, s = args.num_streams;
  const float *q = host(args.q_weight).floats, *k = host(args.k_weight).floats;
  const auto dot_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hidden)));
  std::vector<float> x(static_cast<size_t>(hidden)), key(static_cast<size_t>(hidden));
  for (int64_t r = 0; r < args.rows; ++r) {
    const bf16* kv = args.kv + r * (s + 1) * hidden;
    const bf16* value = kv + s * hidden;
    for (int64_t i = 0; i < s; ++i) {
      bf16* stream = args.streams + (r * s + i) * hidden;
      scalar::widen(stream, hidden, x.data());
      scalar::widen(kv + i * hidden, hidden, key.data());
      const float norm = scalar::rsqrt(scalar::mean_square(x.data(), hidden) + args.norm_eps) *
                         scalar::rsqrt(scalar::mean_square(key.data(), hidden) + args.norm_eps);
      double sum = 0;
      for (int64_t d = 0; d < hidden; ++d) {
        const auto at = static_cast<size_t>(d);
        sum += static_cast<double>(x[at] * (q[i * hidden + d] * k[i * hidden + d]) * key[at]);
      }
      const float dot = static_cast<float>(sum) * norm * dot_scale;
      const float root = std::sqrt(std::max(std::fabs(dot), 1e-6f));
      const float gate = args.image[r] ? 0.0f : scalar::sigmoid(std::copysign(root, dot));
      args.gate[r * s + i] = gate;
      for (int64_t d = 0; d < hidden; ++d) {
        stream[d] = to_bf16(x[static_cast<size_t>(d)] + gate * to_float(value[d]));
      }
    }
  }
}

}  // namespace folio
