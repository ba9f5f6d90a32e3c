#include "ops/index_select.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/ref/reference_ops.h"
#include "ops/ref/scalar.h"
#include "ops/row_codec.h"

namespace folio {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Indices of the `k` largest values, ascending; the lowest index wins ties. Values of -infinity are never taken.
std::vector<int32_t> top_indices(const std::vector<float>& values, int32_t k) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(std::min(order.size(), static_cast<size_t>(k)));
  std::erase_if(order, [&](int32_t i) { return values[static_cast<size_t>(i)] == kNever; });
  std::sort(order.begin(), order.end());
  return order;
}

// The heads of query i, rounded as a row of the plane is.
std::vector<float> rounded_query(const IndexSelectArgs& args, int32_t i) {
  const int64_t dim = args.keys.dim;
  std::vector<float> query(static_cast<size_t>(args.heads * dim));
  scalar::widen(args.query + i * args.heads * dim, args.heads * dim, query.data());
  for (int32_t h = 0; h < args.heads; ++h) {
    float* head = query.data() + h * dim;
    uint8_t codes[kMaxRowDim], scales[kMaxRowDim / 32];
    quantize_row(args.keys.format, head, dim, codes, scales);
    decode_row(args.keys.format, reinterpret_cast<const std::byte*>(codes), reinterpret_cast<const std::byte*>(scales),
               dim, head);
  }
  return query;
}

// The score of a key (spec 6.5, runtime 6). Factors of powers of two may stand anywhere: here inside query and key.
float score_key(const IndexSelectArgs& args, const float* query, const float* key, const bf16* head_weights) {
  const bool rounded = args.keys.format == RowFormat::kFp4Index;
  double sum = 0;
  for (int32_t h = 0; h < args.heads; ++h) {
    const float dot = scalar::dot(query + h * args.keys.dim, key, args.keys.dim);
    const float relu = std::max(rounded ? bf16_round(dot) : dot, 0.0f);
    const float weight = to_float(head_weights[h]);
    sum += rounded ? static_cast<double>(bf16_round(relu * weight))
                   : static_cast<double>(relu) * static_cast<double>(weight);
  }
  return rounded ? bf16_round(static_cast<float>(sum)) : static_cast<float>(sum);
}

// Scores of the visible entries of query i, which belongs to row r.
std::vector<float> score(const IndexSelectArgs& args, int32_t i, int32_t r, int32_t visible) {
  const int64_t dim = args.keys.dim;
  const std::vector<float> query = rounded_query(args, i);
  std::vector<float> key(static_cast<size_t>(dim));
  const int32_t* table =
      args.rows.page_tables + static_cast<int64_t>(args.rows.request[r]) * args.rows.page_table_stride;
  std::vector<float> scores(static_cast<size_t>(visible));
  for (int32_t j = 0; j < visible; ++j) {
    const RowAddress row = args.keys.at(table, j);
    decode_row(args.keys.format, row.codes, row.scales, dim, key.data());
    scores[static_cast<size_t>(j)] = score_key(args, query.data(), key.data(), args.head_weights + i * args.heads);
  }
  return scores;
}

// Blocks that stay in a query's candidate pool (spec 6.8): the newest always.
std::vector<int32_t> candidate_blocks(const std::vector<float>& scores, int32_t size, int32_t most) {
  const auto count = static_cast<int32_t>(scores.size());
  std::vector<float> best(static_cast<size_t>((count + size - 1) / size), kNever);
  for (int32_t j = 0; j < count; ++j) {
    float& block = best[static_cast<size_t>(j / size)];
    block = std::max(block, scores[static_cast<size_t>(j)]);
  }
  if (count > 0) best.back() = std::numeric_limits<float>::infinity();
  return top_indices(best, most);
}

void store_padded(const std::vector<int32_t>& values, int32_t width, int32_t* out) {
  std::copy(values.begin(), values.end(), out);
  std::fill(out + values.size(), out + width, -1);
}

}  // namespace

void ReferenceOps::index_select(const IndexSelectArgs& args) {
  for (int32_t i = 0; i < args.queries(); ++i) {
    const int32_t r = args.row_of(i);
    std::vector<float> scores = score(args, i, r, args.rows.visible(r, args.ratio));
    if (args.scores != nullptr) std::copy(scores.begin(), scores.end(), args.scores + r * args.scores_stride);
    int32_t* candidates = args.candidates + static_cast<int64_t>(r) * args.candidate_blocks;
    if (args.role == CandidateRole::kWrite) {
      store_padded(candidate_blocks(scores, args.candidate_size, args.candidate_blocks), args.candidate_blocks,
                   candidates);
    } else if (args.role == CandidateRole::kRead) {
      std::vector<float> masked(scores.size(), kNever);
      for (int32_t b = 0; b < args.candidate_blocks && candidates[b] >= 0; ++b) {
        const auto begin = static_cast<size_t>(candidates[b]) * static_cast<size_t>(args.candidate_size);
        const size_t end = std::min(scores.size(), begin + static_cast<size_t>(args.candidate_size));
        for (size_t j = begin; j < end; ++j) masked[j] = scores[j];
      }
      scores = masked;
    }
    store_padded(top_indices(scores, args.topk), args.topk, args.selected + static_cast<int64_t>(r) * args.topk);
  }
}

}  // namespace folio
