// The layer schedule (spec/model.md 2): what each layer owns and what it reads from which other layer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"

namespace folio {

enum class LayerKind {
  kWindow,   // sliding window only
  kFull,     // owns a compressor, compressed KV and index keys; runs its own indexer
  kReindex,  // scores its owner's index keys with its own queries
  kReuse,    // takes the selected list of the index source before it
};

std::string_view layer_kind_name(LayerKind kind);

struct LayerTopology {
  LayerKind kind = LayerKind::kWindow;
  int ratio = 0;                   // positions per compressed entry; 0 for window layers
  int kv_owner = -1;               // layer whose compressed KV and index keys are read; -1 for window layers
  int index_source = -1;           // layer whose selected list is attended; -1 for window layers
  bool writes_candidates = false;  // its scores make the candidate pool
  bool reads_candidates = false;   // its indexer sees the candidate pool only
  int engram = -1;                 // index in engram_layer_ids of the injection before this layer, or -1

  bool operator==(const LayerTopology&) const = default;
};

struct Topology {
  std::vector<LayerTopology> layers;  // of the backbone; draft stages are window layers and not listed
  std::vector<int> kv_owners;         // ascending; a layer's position here numbers its plane of a PAGE
  std::vector<int> index_sources;     // ascending
  int candidate_source = -1;
  // First decoder layer of the causal encoder/decoder split: the last KV owner, or layers.size() without owners.
  int first_decoder_layer = 0;

  const LayerTopology& operator[](int layer) const { return layers[static_cast<size_t>(layer)]; }
  // Position of a KV owner in kv_owners, or -1.
  int owner_index(int layer) const;
};

// The schedule of a config that parse_config() has accepted.
Topology make_topology(const Config& config);

// Why decoder replay cannot work for a model: nothing if it can.
std::optional<std::string> decoder_replay_refusal(const Config& config, const Topology& topology);

// Why a model cannot draft `tokens` tokens at a time (spec runtime 7.1): nothing if it can.
std::optional<std::string> speculation_refusal(const Config& config, const Topology& topology, int32_t tokens);

}  // namespace folio
