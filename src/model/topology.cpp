#include "model/topology.h"

#include "base/error.h"

#include <algorithm>

namespace folio {
namespace {

// The last of ascending `sources` that is not after `layer`.
int source_of(const std::vector<int>& sources, int layer) {
  return *std::prev(std::upper_bound(sources.begin(), sources.end(), layer));
}

LayerTopology make_layer(const Config& config, int layer) {
  LayerTopology result;
  result.engram = config.engram_index(layer);
  result.ratio = config.ratio(layer);
  if (result.ratio == 0) return result;
  result.kv_owner = source_of(config.kv_source_layer_ids, layer);
  result.index_source = source_of(config.index_source_layer_ids, layer);
  const int candidates = config.candidate_source_layer_id;
  result.writes_candidates = layer == candidates;
  if (result.index_source != layer) {
    result.kind = LayerKind::kReuse;
  } else {
    result.kind = result.kv_owner == layer ? LayerKind::kFull : LayerKind::kReindex;
    result.reads_candidates = candidates >= 0 && layer > candidates;
  }
  return result;
}

}  // namespace

std::string_view layer_kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kWindow:
      return "window";
    case LayerKind::kFull:
      return "full";
    case LayerKind::kReindex:
      return "reindex";
    case LayerKind::kReuse:
      return "reuse";
  }
  return "?";
}

int Topology::owner_index(int layer) const {
  const auto found = std::find(kv_owners.begin(), kv_owners.end(), layer);
  return found == kv_owners.end() ? -1 : static_cast<int>(found - kv_owners.begin());
}

Topology make_topology(const Config& config) {
  Topology topology;
  topology.kv_owners = config.kv_source_layer_ids;
  topology.index_sources = config.index_source_layer_ids;
  topology.candidate_source = config.candidate_source_layer_id;
  topology.first_decoder_layer =
      config.kv_source_layer_ids.empty() ? config.num_hidden_layers : config.kv_source_layer_ids.back();
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) topology.layers.push_back(make_layer(config, layer));
  return topology;
}

std::optional<std::string> decoder_replay_refusal(const Config& config, const Topology& topology) {
  if (topology.kv_owners.empty()) return "the model has no KV owner";
  if (topology.first_decoder_layer + 1 >= config.num_hidden_layers) return "no layer follows the last KV owner";
  for (const int layer : config.engram_layer_ids) {
    if (layer > topology.first_decoder_layer) return concat("Engram at layer ", layer, " follows the last KV owner");
  }
  return std::nullopt;
}

std::optional<std::string> speculation_refusal(const Config& config, const Topology& topology, int32_t tokens) {
  if (config.num_nextn_predict_layers == 0) return "--speculative dspark: the model has no draft stages";
  if (tokens < 1 || tokens > config.dspark_block_size) {
    return concat("--num-speculative-tokens ", tokens, " must be from 1 to the model's block of ",
                  config.dspark_block_size);
  }
  for (const int layer : config.dspark_target_layer_ids) {
    if (config.engram_index(layer) >= 0) {
      return concat("--speculative dspark: its target layer ", layer, " begins with Engram injection");
    }
    if (layer < topology.first_decoder_layer) {
      return concat("--speculative dspark: its target layer ", layer, " comes before the decoder's first, ",
                    topology.first_decoder_layer);
    }
  }
  return std::nullopt;
}

}  // namespace folio
