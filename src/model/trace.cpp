#include "model/trace.h"

#include <vector>

#include "numerics/quantize.h"

namespace folio {
namespace {

std::vector<float> widened(const bf16* x, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = to_float(x[i]);
  return out;
}

// The rows of x that complete an entry, gathered.
std::vector<bf16> completed_rows(const Rows& rows, int32_t ratio, const bf16* x, int64_t dim) {
  std::vector<bf16> out;
  for (int32_t r = 0; r < rows.count; ++r) {
    if (rows.completed(r, ratio) >= 0) out.insert(out.end(), x + r * dim, x + (r + 1) * dim);
  }
  return out;
}

}  // namespace

void Tracer::window(const std::string& key, const bf16* x, int64_t rows, int64_t dim) {
  if (!on()) return;
  std::vector<uint8_t> codes(static_cast<size_t>(rows * dim)), scales(codes.size() / kQuant8Group);
  quantize8(widened(x, rows * dim).data(), rows * dim, codes.data(), scales.data());
  put(key + ".codes", DType::kF8E4M3, {rows, dim}, codes.data());
  put(key + ".scales", DType::kF8E8M0, {rows, dim / kQuant8Group}, scales.data());
}

void Tracer::entries(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x, int64_t dim) {
  if (!on()) return;
  const auto values = completed_rows(rows, ratio, x, dim);
  put(key, values.data(), {static_cast<int64_t>(values.size()) / dim, dim});
}

void Tracer::main_codes(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x, int64_t dim) {
  if (!on()) return;
  const auto values = completed_rows(rows, ratio, x, dim);
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> codes(values.size() / 2), scales(values.size() / kQuant4MainGroup);
  quantize4_main(widened(values.data(), n).data(), n, codes.data(), scales.data());
  put(key + ".codes", DType::kU8, {n / dim, dim / 2}, codes.data());
  put(key + ".scales", DType::kF8E4M3, {n / dim, dim / kQuant4MainGroup}, scales.data());
}

void Tracer::index_codes(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x, int64_t dim) {
  if (!on()) return;
  const auto values = completed_rows(rows, ratio, x, dim);
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> codes(values.size() / 2), scales(values.size() / kQuant4IndexGroup);
  quantize4_index(widened(values.data(), n).data(), n, codes.data(), scales.data());
  put(key + ".codes", DType::kU8, {n / dim, dim / 2}, codes.data());
  put(key + ".scales", DType::kF8E8M0, {n / dim, dim / kQuant4IndexGroup}, scales.data());
}

void Tracer::selection(const std::string& layer, const IndexSelectArgs& args) {
  if (!on()) return;
  const int64_t n = args.rows.count, dim = args.keys.dim, count = n * args.heads * dim;
  std::vector<float> query = widened(args.query, count);
  std::vector<uint8_t> codes(query.size() / 2), scales(query.size() / kQuant4IndexGroup);
  quantize4_index(query.data(), count, codes.data(), scales.data());
  dequantize4_index(codes.data(), scales.data(), count, query.data());
  std::vector<bf16> rounded;
  for (const float value : query) rounded.push_back(to_bf16(value));
  put(layer + ".index_query", rounded.data(), {n, args.heads, dim});
  put(layer + ".index_weights", args.head_weights, {n, args.heads});

  std::vector<bf16> scores;
  for (int32_t r = 0; r < args.rows.count; ++r) {
    const bf16* row = args.scores + r * args.scores_stride;
    scores.insert(scores.end(), row, row + args.rows.visible(r, args.ratio));
  }
  put(layer + ".index_scores", scores.data(), {static_cast<int64_t>(scores.size())});
  put(layer + ".selected", args.selected, {n, args.topk});
  if (args.role == CandidateRole::kWrite) put(layer + ".candidates", args.candidates, {n, args.candidate_blocks});
}

void Tracer::stream_means(const std::string& key, const bf16* streams, int64_t rows, int64_t num_streams,
                          int64_t hidden) {
  if (!on()) return;
  std::vector<bf16> means;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < hidden; ++d) {
      double sum = 0;
      for (int64_t s = 0; s < num_streams; ++s)
        sum += static_cast<double>(to_float(streams[(r * num_streams + s) * hidden + d]));
      means.push_back(to_bf16(static_cast<float>(sum) / static_cast<float>(num_streams)));
    }
  }
  put(key, means.data(), {rows, hidden});
}

}  // namespace folio
