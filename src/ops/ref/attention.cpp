#include <algorithm>
#include <vector>

#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/scalar.h"
#include "ops/row_codec.h"

namespace folio {
namespace {

constexpr int32_t kChunk = 64;           // list slots between roundings of the running maximum
constexpr float kFirstMaximum = -1e30f;  // running maximum before the first chunk

// The rows that one query attends to, decoded, with their list slots ascending.
struct List {
  std::vector<float> rows;  // [n, dim]
  std::vector<int32_t> slots;
};

List attended(const AttendArgs& args, int32_t r) {
  const RequestSpan& span = args.rows.spans[args.rows.request[r]];
  const int64_t position = args.rows.position[r];
  const int64_t step_start = args.rows.position[span.first_row];
  List list;
  const auto append = [&](RowFormat format, const std::byte* codes, const std::byte* scales, int32_t slot) {
    list.rows.resize(list.rows.size() + static_cast<size_t>(args.dim));
    decode_row(format, codes, scales, args.dim, list.rows.data() + list.rows.size() - args.dim);
    list.slots.push_back(slot);
  };
  const int64_t newest = args.block > 0 ? step_start - 1 : position;  // that the window counts back from
  std::vector<int64_t> positions;
  const int64_t floor = args.rows.window_floor(args.rows.request[r], args.decoder);
  for (int64_t p = std::max(floor, newest - args.window + 1); p <= newest; ++p) positions.push_back(p);
  if (args.block > 0) {
    std::ranges::sort(positions, {}, [&](int64_t p) { return p % args.window; });
    for (int64_t i = 0; i < args.block; ++i) positions.push_back(step_start + i);
  }
  for (size_t slot = 0; slot < positions.size(); ++slot) {
    const int64_t p = positions[slot];
    const RowAddress row = p >= step_start
                               ? args.ring.row_at(const_cast<std::byte*>(args.encoded), span.first_row + p - step_start)
                               : args.ring.at(span.slot, p);
    append(args.ring.format, row.codes, row.scales, static_cast<int32_t>(slot));
  }
  if (args.selected != nullptr) {
    const int32_t* table =
        args.rows.page_tables + static_cast<int64_t>(args.rows.request[r]) * args.rows.page_table_stride;
    const int32_t* selected = args.selected + static_cast<int64_t>(r) * args.topk;
    for (int32_t i = 0; i < args.topk && selected[i] >= 0; ++i) {
      const RowAddress row = args.main.at(table, selected[i]);
      append(args.main.format, row.codes, row.scales, args.window + i);
    }
  }
  return list;
}

}  // namespace

void ReferenceOps::attend(const AttendArgs& args) {
  const int64_t dim = args.dim;
  const auto score_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const float* sink = host(args.sink).floats;
  std::vector<float> query(static_cast<size_t>(dim)), part(static_cast<size_t>(dim)), total(static_cast<size_t>(dim));
  std::vector<double> sum(static_cast<size_t>(dim));
  for (int32_t i = 0; i < args.queries(); ++i) {
    const List list = attended(args, args.row_of(i));
    const size_t n = list.slots.size();
    std::vector<float> scores(n);
    for (int32_t h = 0; h < args.heads; ++h) {
      const int64_t head = static_cast<int64_t>(i) * args.heads + h;
      scalar::widen(args.query + head * dim, dim, query.data());
      for (size_t j = 0; j < n; ++j) {
        scores[j] = scalar::dot(query.data(), list.rows.data() + j * static_cast<size_t>(dim), dim) * score_scale;
      }
      float maximum = kFirstMaximum, denominator = 0;
      std::fill(total.begin(), total.end(), 0.0f);
      for (size_t begin = 0, end; begin < n; begin = end) {
        end = begin;
        while (end < n && list.slots[end] / kChunk == list.slots[begin] / kChunk) ++end;
        const float top = std::max(maximum, *std::max_element(&scores[begin], &scores[end - 1] + 1));
        const float rescale = scalar::exp(maximum - top);
        maximum = top;
        double probabilities = 0;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (size_t j = begin; j < end; ++j) {
          const float p = scalar::exp(scores[j] - maximum);
          probabilities += static_cast<double>(p);
          const auto weight = static_cast<double>(bf16_round(p));
          const float* value = list.rows.data() + j * static_cast<size_t>(dim);
          for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * static_cast<double>(value[d]);
        }
        denominator = denominator * rescale + static_cast<float>(probabilities);
        for (size_t d = 0; d < sum.size(); ++d) total[d] = total[d] * rescale + static_cast<float>(sum[d]);
      }
      denominator += scalar::exp(sink[h] - maximum);
      for (int64_t d = 0; d < dim; ++d) args.out[head * dim + d] = to_bf16(total[static_cast<size_t>(d)] / denominator);
    }
  }
}

}  // namespace folio
