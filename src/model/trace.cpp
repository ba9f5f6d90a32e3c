#include "model/trace.h"

#include <vector>

#include "numerics/quantize.h"
#include "ops/row_codec.h"

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
  if (!wants(key)) return;
  std::vector<uint8_t> codes(static_cast<size_t>(rows * dim)), scales(codes.size() / kQuant8Group);
  quantize8(widened(x, rows * dim).data(), rows * dim, codes.data(), scales.data());
  put(key + ".codes", DType::kF8E4M3, {rows, dim}, codes.data());
  put(key + ".scales", DType::kF8E8M0, {rows, dim / kQuant8Group}, scales.data());
}

void Tracer::entries(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x, int64_t dim) {
  if (!wants(key)) return;
  const auto values = completed_rows(rows, ratio, x, dim);
  put(key, values.data(), {static_cast<int64_t>(values.size()) / dim, dim});
}

void Tracer::main_codes(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x, int64_t dim) {
  if (!wants(key)) return;
  const auto values = completed_rows(rows, ratio, x, dim);
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> codes(values.size() / 2), scales(values.size() / kQuant4MainGroup);
  quantize4_main(widened(values.data(), n).data(), n, codes.data(), scales.data());
  put(key + ".codes", DType::kU8, {n / dim, dim / 2}, codes.data());
  put(key + ".scales", DType::kF8E4M3, {n / dim, dim / kQuant4MainGroup}, scales.data());
}

void Tracer::index_codes(const std::string& key, const Rows& rows, int32_t ratio, const bf16* x,
                         const PagedRows& plane) {
  if (!wants(key)) return;
  const int64_t dim = plane.dim, code_width = code_bytes(plane.format, dim),
                scale_width = scale_bytes(plane.format, dim);
  const auto values = completed_rows(rows, ratio, x, dim);
  const int64_t n = std::ssize(values) / dim;
  std::vector<uint8_t> codes(static_cast<size_t>(n * code_width)), scales(static_cast<size_t>(n * scale_width));
  for (int64_t r = 0; r < n; ++r) {
    quantize_row(plane.format, widened(values.data() + r * dim, dim).data(), dim, codes.data() + r * code_width,
                 scales.data() + r * scale_width);
  }
  put(key + ".codes", plane.format == RowFormat::kFp8Index ? DType::kF8E4M3 : DType::kU8, {n, code_width},
      codes.data());
  put(key + ".scales", DType::kF8E8M0, {n, scale_width}, scales.data());
}

void Tracer::selection(const std::string& layer, const IndexSelectArgs& args) {
  if (!wants(layer + ".index_scores")) return;
  const int64_t n = args.rows.count, dim = args.keys.dim;
  // On the grid of either format, so exact in bf16.
  std::vector<bf16> query(static_cast<size_t>(n * args.heads * dim));
  for (int64_t head = 0; head < n * args.heads; ++head) {
    const RowAddress out{reinterpret_cast<std::byte*>(query.data() + head * dim), nullptr};
    encode_row(args.keys.format, RowFormat::kBf16, widened(args.query + head * dim, dim).data(), dim, out);
  }
  put(layer + ".index_query", query.data(), {n, args.heads, dim});
  put(layer + ".index_weights", args.head_weights, {n, args.heads});

  std::vector<float> scores;
  for (int32_t r = 0; r < args.rows.count; ++r) {
    const float* row = args.scores + r * args.scores_stride;
    scores.insert(scores.end(), row, row + args.rows.visible(r, args.ratio));
  }
  if (args.keys.format == RowFormat::kFp8Index) {
    put(layer + ".index_scores", scores.data(), {std::ssize(scores)});
  } else {
    std::vector<bf16> narrow;
    for (const float score : scores) narrow.push_back(to_bf16(score));
    put(layer + ".index_scores", narrow.data(), {std::ssize(narrow)});
  }
  put(layer + ".selected", args.selected, {n, args.topk});
  if (args.role == CandidateRole::kWrite) put(layer + ".candidates", args.candidates, {n, args.candidate_blocks});
}

void Tracer::stream_means(const std::string& key, const bf16* streams, int64_t rows, int64_t num_streams,
                          int64_t hidden) {
  if (!wants(key)) return;
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
