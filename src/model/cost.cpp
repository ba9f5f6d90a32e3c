#include "model/cost.h"

#include <algorithm>

#include "checkpoint/schema.h"

namespace folio {
namespace {

// Bytes and multiply-adds of the weights that one row meets, from the schema: all of the backbone but the tables that
// are read by row, and of the routed experts only the row's.
void add_weights(const Config& config, bool head, StepCost& cost) {
  for (const TensorSpec& tensor : make_schema(config)) {
    double share = 1;
    switch (tensor.part) {
      case Part::kDraft:
      case Part::kVision:
      case Part::kEmbedding:
      case Part::kEngramTables:
        continue;
      case Part::kHead:
        if (!head) continue;
        break;
      case Part::kRoutedExperts:
        share = static_cast<double>(config.num_experts_per_tok) / static_cast<double>(config.n_routed_experts);
        break;
      default:
        break;
    }
    cost.weight_bytes += share * static_cast<double>(tensor.bytes());
    if (tensor.shape.rank() == 2 && tensor.dtype != DType::kF8E8M0) {
      const double codes_per_element = tensor.dtype == DType::kI8 ? 2 : 1;
      cost.flops += 2 * share * codes_per_element * static_cast<double>(tensor.shape.elements());
    }
  }
}

}  // namespace

StepCost row_cost(const Config& config, const Topology& topology, const Geometry& geometry, int64_t context,
                  bool head) {
  StepCost cost;
  add_weights(config, head, cost);
  const int64_t position = context;
  const auto window_rows = static_cast<double>(std::min(position + 1, config.sliding_window));
  const auto row_bytes = [](RowFormat format, int64_t dim) {
    return static_cast<double>(code_bytes(format, dim) + scale_bytes(format, dim));
  };
  const double window_bytes = row_bytes(geometry.window_rows(nullptr, 0).format, config.head_dim);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerTopology& at = topology[layer];
    double listed = window_rows;
    cost.cache_bytes += window_rows * window_bytes;
    if (at.ratio > 0) {
      const int64_t visible = (position + 1) / at.ratio;
      const auto selected = static_cast<double>(std::min(visible, config.index_topk));
      listed += selected;
      const PagedRows main = geometry.main_rows(nullptr, static_cast<size_t>(topology.owner_index(at.kv_owner)));
      cost.cache_bytes += selected * row_bytes(main.format, config.head_dim);
      if (at.index_source == layer && visible > config.index_topk) {
        const int64_t pool = config.candidate_topk_blocks * config.candidate_block_size;
        const auto scored = static_cast<double>(at.reads_candidates ? std::min(visible, pool) : visible);
        cost.cache_bytes += scored * row_bytes(RowFormat::kFp4Index, config.index_head_dim);
        cost.flops += 2 * scored * static_cast<double>(config.index_n_heads * config.index_head_dim);
      }
    }
    cost.flops += 4 * listed * static_cast<double>(config.num_attention_heads * config.head_dim);
  }
  return cost;
}

}  // namespace folio
