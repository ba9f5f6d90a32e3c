// The prepared weights of the text backbone and of its draft head, one handle per published tensor or set of tensors
// (spec/model.md 3).
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/topology.h"
#include "ops/ops.h"

namespace folio {

struct HyperWeights {
  WeightHandle fn, scale, base;
};

struct CompressorWeights {
  WeightHandle wkv, wgate, norm;  // wgate only at ratio 2
  WeightHandle wk, k_norm;        // index keys
};

struct IndexerWeights {
  WeightHandle wq_b, weights_proj;
};

struct AttentionWeights {
  WeightHandle wq_a, q_norm, wq_b, wkv, kv_norm, wo_a, wo_b, sink;
  CompressorWeights compressor;  // of KV owners
  IndexerWeights indexer;        // of index sources
};

struct MoeWeights {
  WeightHandle gate, bias, bias_image, experts;
};

struct EngramWeights {
  WeightHandle table, wkv, q_weight, k_weight;
};

struct BlockWeights {
  WeightHandle attn_norm, ffn_norm;
  HyperWeights hc_attn, hc_ffn;
  AttentionWeights attention;
  MoeWeights moe;
  EngramWeights engram;  // of Engram layers
};

// Embedding and head are the backbone's.
struct DraftWeights {
  WeightHandle main_proj, main_norm;
  std::vector<BlockWeights> stages;
  WeightHandle norm;
  WeightHandle markov_embed, markov_head, confidence;
};

struct ModelWeights {
  WeightHandle embed, head, norm;
  std::vector<BlockWeights> layers;
  DraftWeights draft;  // empty unless asked for
};

// Prepares every weight of the backbone, and of the draft head if `draft`. The checkpoint must outlive the result.
ModelWeights load_weights(Ops& ops, const Checkpoint& checkpoint, const Topology& topology, bool draft = false);

}  // namespace folio
