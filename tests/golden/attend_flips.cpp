// Attention rounds its probabilities to bf16 before the value product. A probability that lies within fp32 noise of a
// tie between two bf16 values may fall to either side, which moves every element of the head by up to an ulp of the
// probability times the value: many ulps of an element whose terms cancel. This finds such probabilities, in double.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "op_runner.h"
#include "ops/row_codec.h"

namespace folio::golden {
namespace {

constexpr int64_t kChunk = 64;

struct Entry {
  int64_t slot;
  double score;
  double noise;  // fp32 noise of the score
  double value;  // the element in question of the row
};

// Whether p (1 + noise) and p (1 - noise) round to different bf16 values.
bool near_tie(double p, double noise) {
  const auto round = [](double x) { return to_bf16(static_cast<float>(x)).bits; };
  return round(p * (1 + noise)) != round(p * (1 - noise));
}

double ulp(double p) { return std::ldexp(1.0, std::ilogb(p) - 7); }

// By how much the roundings near a tie, and fp32 sums, can move sum(p value) / sum(p).
double allowance(const std::vector<Entry>& list, double sink) {
  // fp32: a few ulps in exp and in its argument.
  constexpr double kExpNoise = 0x1p-21;
  // fp32: the terms of the value product are added one by one, or by lanes.
  constexpr double kSumNoise = 0x1p-22;
  double maximum = -1e30, denominator = 0, moved = 0;
  for (size_t begin = 0, end; begin < list.size(); begin = end) {
    double top = maximum;
    for (end = begin; end < list.size() && list[end].slot / kChunk == list[begin].slot / kChunk; ++end) {
      top = std::max(top, list[end].score);
    }
    const double rescale = std::exp(maximum - top);
    denominator *= rescale;
    moved *= rescale;
    maximum = top;
    for (size_t i = begin; i < end; ++i) {
      const double p = std::exp(list[i].score - maximum);
      denominator += p;
      const double noise = kExpNoise + list[i].noise * 2 + std::fabs(list[i].score - maximum) * 0x1p-23;
      moved += kSumNoise * p * std::fabs(list[i].value);
      if (p > 0x1p-126 && near_tie(p, noise)) moved += ulp(p) * std::fabs(list[i].value);
    }
  }
  return moved / (denominator + std::exp(sink - maximum));
}

}  // namespace

double OpRunner::probability_flips(int layer, int64_t index) const {
  const LayerTopology& topology = topology_[layer];
  const int64_t dim = config().head_dim, heads = config().num_attention_heads, window = config().sliding_window;
  const int64_t element = index % dim, head = index / dim % heads, position = index / dim / heads;
  const auto query =
      bf16s(key(layer, "attn.q")).subspan(static_cast<size_t>(index - element), static_cast<size_t>(dim));
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  std::vector<Entry> list;
  std::vector<float> row(static_cast<size_t>(dim));
  const auto append = [&](const std::string& rows, RowFormat format, int64_t which, int64_t slot) {
    const auto codes = golden_.get<std::byte>(rows + ".codes"), scales = golden_.get<std::byte>(rows + ".scales");
    decode_row(format, codes.data() + which * code_bytes(format, dim), scales.data() + which * scale_bytes(format, dim),
               dim, row.data());
    double dot = 0, size = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const double product = static_cast<double>(to_float(query[i])) * static_cast<double>(row[i]);
      dot += product;
      size += std::fabs(product);
    }
    list.push_back({.slot = slot,
                    .score = dot * scale,
                    .noise = size * scale * 0x1p-24,
                    .value = static_cast<double>(row[static_cast<size_t>(element)])});
  };
  const int64_t first = std::max<int64_t>(0, position - window + 1);
  for (int64_t p = first; p <= position; ++p) append(key(layer, "window"), RowFormat::kFp8Window, p, p - first);
  if (topology.ratio > 0) {
    const int64_t topk = config().index_topk;
    const auto selected = golden_.get<int32_t>(key(topology.index_source, "selected"));
    for (int64_t i = 0; i < topk; ++i) {
      const int32_t entry = selected[static_cast<size_t>(position * topk + i)];
      if (entry < 0) break;
      append(key(topology.kv_owner, "compressed"), RowFormat::kFp4Main, entry, window + i);
    }
  }
  const TensorView sink = checkpoint_.tensor(key(layer, "attn.attn_sink"));
  float sink_logit = 0;
  std::memcpy(&sink_logit, sink.data + head * static_cast<int64_t>(sizeof sink_logit), sizeof sink_logit);
  return allowance(list, static_cast<double>(sink_logit));
}

}  // namespace folio::golden
