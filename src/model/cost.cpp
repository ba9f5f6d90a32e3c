#include "model/cost.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "checkpoint/schema.h"

namespace folio {
namespace {

// The share of a tensor that one row meets: all of it, its own experts' part, or nothing.
double share(const Config& config, const TensorSpec& tensor, bool head) {
  switch (tensor.part) {
    case Part::kDraft:
    case Part::kVision:
    case Part::kEmbedding:     // read by row
    case Part::kEngramTables:  // likewise
      return 0;
    case Part::kHead:
      return head ? 1 : 0;
    default:
      break;
  }
  const std::string last = concat("layers.", config.num_hidden_layers - 1, ".");
  const bool makes_keys = tensor.name.find(".attn.wkv.") != std::string::npos || tensor.part == Part::kCompressor;
  if (!head && tensor.name.starts_with(last) && !makes_keys) return 0;
  if (tensor.part != Part::kRoutedExperts) return 1;
  return static_cast<double>(config.num_experts_per_tok) / static_cast<double>(config.n_routed_experts);
}

// The share of `experts` experts that `rows` rows meet on average if each picks `chosen` of them at random.
double met_share(int64_t experts, int64_t chosen, int64_t rows) {
  const double missed = 1 - static_cast<double>(chosen) / static_cast<double>(experts);
  return 1 - std::pow(missed, static_cast<double>(rows));
}

bool contains(const std::string& name, std::string_view part) { return name.find(part) != std::string::npos; }

// What every row of a step adds to the draft head's context (spec/model.md 9.1).
bool makes_draft_context(const std::string& name) {
  return contains(name, ".main_proj") || contains(name, ".main_norm") || contains(name, ".attn.wkv.") ||
         contains(name, ".attn.kv_norm");
}

}  // namespace

double step_weight_bytes(const Config& config, int64_t rows, bool drafts) {
  double bytes = 0;
  for (const TensorSpec& tensor : make_schema(config)) {
    double part = tensor.part == Part::kRoutedExperts
                      ? met_share(config.n_routed_experts, config.num_experts_per_tok, rows)
                      : share(config, tensor, true);
    if (drafts && tensor.part == Part::kDraft && makes_draft_context(tensor.name)) part = 1;
    bytes += part * static_cast<double>(tensor.bytes());
  }
  return bytes;
}

double draft_weight_bytes(const Config& config, int64_t requests, int32_t width) {
  double bytes = 0;
  for (const TensorSpec& tensor : make_schema(config)) {
    if (tensor.part == Part::kHead) bytes += static_cast<double>(tensor.bytes());
    if (tensor.part != Part::kDraft) continue;
    double part = 1;
    if (contains(tensor.name, ".ffn.experts.")) {
      part = met_share(config.dspark_n_routed_experts, config.dspark_num_experts_per_tok, requests * width);
    } else if (contains(tensor.name, ".main_proj") || contains(tensor.name, ".main_norm") ||
               contains(tensor.name, ".markov_head.embed")) {
      part = 0;  // of the step; read by row
    } else if (contains(tensor.name, ".markov_head.head")) {
      part = width;
    }
    bytes += part * static_cast<double>(tensor.bytes());
  }
  return bytes;
}

RowCost weight_cost(const Config& config, bool head) {
  RowCost cost;
  for (const TensorSpec& tensor : make_schema(config)) {
    const double part = share(config, tensor, head);
    cost.bytes += part * static_cast<double>(tensor.bytes());
    if (tensor.shape.rank() == 2 && tensor.dtype != DType::kF8E8M0) {
      const double codes_per_element = tensor.dtype == DType::kI8 ? 2 : 1;
      cost.flops += 2 * part * codes_per_element * static_cast<double>(tensor.shape.elements());
    }
  }
  return cost;
}

RowCost attention_cost(const Config& config, const Topology& topology, const Geometry& geometry, int64_t position,
                       bool head) {
  RowCost cost;
  const auto window_rows = static_cast<double>(std::min(position + 1, config.sliding_window));
  const auto row_bytes = [](RowFormat format, int64_t dim) {
    return static_cast<double>(code_bytes(format, dim) + scale_bytes(format, dim));
  };
  const double window_bytes = row_bytes(geometry.window_rows(nullptr, 0).format, config.head_dim);
  const int queried_layers = config.num_hidden_layers - (head ? 0 : 1);
  for (int layer = 0; layer < queried_layers; ++layer) {
    const LayerTopology& at = topology[layer];
    double listed = window_rows;
    cost.bytes += window_rows * window_bytes;
    if (at.ratio > 0) {
      const int64_t visible = (position + 1) / at.ratio;
      const auto selected = static_cast<double>(std::min(visible, config.index_topk));
      listed += selected;
      const PagedRows main = geometry.main_rows(nullptr, static_cast<size_t>(topology.owner_index(at.kv_owner)));
      cost.bytes += selected * row_bytes(main.format, config.head_dim);
      if (at.index_source == layer && visible > config.index_topk) {
        const int64_t pool = config.candidate_topk_blocks * config.candidate_block_size;
        const auto scored = static_cast<double>(at.reads_candidates ? std::min(visible, pool) : visible);
        cost.bytes += scored * row_bytes(geometry.inputs().format.index(), config.index_head_dim);
        cost.flops += 2 * scored * static_cast<double>(config.index_n_heads * config.index_head_dim);
      }
    }
    cost.flops += 4 * listed * static_cast<double>(config.num_attention_heads * config.head_dim);
  }
  return cost;
}

}  // namespace folio
