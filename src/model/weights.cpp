#include "model/weights.h"

#include "base/error.h"

namespace folio {
namespace {

class Loader {
 public:
  Loader(Ops& ops, const Checkpoint& checkpoint) : ops_(ops), checkpoint_(checkpoint) {}

  WeightHandle vector(const std::string& name) { return plain(WeightKind::kVector, name); }
  WeightHandle f32(const std::string& name) { return plain(WeightKind::kF32, name); }
  WeightHandle bf16(const std::string& name) { return plain(WeightKind::kBf16, name + ".weight"); }
  WeightHandle norm(const std::string& name) { return vector(name + ".weight"); }
  WeightHandle fp8(const std::string& name) { return ops_.prepare(WeightKind::kFp8, quantised(name)); }
  WeightHandle fp8_rows(const std::string& name) { return ops_.prepare(WeightKind::kFp8Rows, quantised(name)); }

  BlockWeights block(const std::string& prefix, int layer, const LayerTopology& topology) {
    BlockWeights block;
    block.attn_norm = norm(prefix + ".attn_norm");
    block.ffn_norm = norm(prefix + ".ffn_norm");
    block.hc_attn = hyper(prefix + ".hc_attn");
    block.hc_ffn = hyper(prefix + ".hc_ffn");
    block.attention = attention(prefix + ".attn", layer, topology);
    block.moe = moe(prefix + ".ffn", checkpoint_.config().experts_of(layer).experts);
    if (topology.engram >= 0) {
      const std::string name = prefix + ".engram";
      block.engram.table = fp8_rows(name + ".embed");
      block.engram.wkv = fp8(name + ".wkv");
      block.engram.q_weight = vector(name + ".q_weight");
      block.engram.k_weight = vector(name + ".k_weight");
    }
    return block;
  }

  DraftWeights draft() {
    const Config& config = checkpoint_.config();
    DraftWeights draft;
    for (int stage = 0; stage < config.num_nextn_predict_layers; ++stage) {
      draft.stages.push_back(block(concat("mtp.", stage), config.num_hidden_layers + stage, LayerTopology{}));
    }
    const std::string last = concat("mtp.", config.num_nextn_predict_layers - 1);
    draft.main_proj = fp8("mtp.0.main_proj");
    draft.main_norm = norm("mtp.0.main_norm");
    draft.norm = norm(last + ".norm");
    draft.markov_embed = bf16(last + ".markov_head.embed");
    draft.markov_head = bf16(last + ".markov_head.head");
    draft.confidence = bf16(last + ".confidence_head.proj");
    return draft;
  }

 private:
  WeightHandle plain(WeightKind kind, const std::string& name) {
    return ops_.prepare(kind, {.weight = checkpoint_.tensor(name), .scale = {}});
  }
  WeightViews quantised(const std::string& name) {
    return {.weight = checkpoint_.tensor(name + ".weight"), .scale = checkpoint_.tensor(name + ".scale")};
  }
  HyperWeights hyper(const std::string& name) {
    return {.fn = f32(name + "_fn"), .scale = vector(name + "_scale"), .base = vector(name + "_base")};
  }

  AttentionWeights attention(const std::string& name, int layer, const LayerTopology& topology) {
    AttentionWeights attention;
    attention.wq_a = fp8(name + ".wq_a");
    attention.q_norm = norm(name + ".q_norm");
    attention.wq_b = fp8(name + ".wq_b");
    attention.wkv = fp8(name + ".wkv");
    attention.kv_norm = norm(name + ".kv_norm");
    attention.wo_a = fp8(name + ".wo_a");
    attention.wo_b = fp8(name + ".wo_b");
    attention.sink = vector(name + ".attn_sink");
    if (topology.kv_owner == layer) {
      attention.compressor.wkv = bf16(name + ".compressor.wkv");
      if (topology.ratio == 2) attention.compressor.wgate = bf16(name + ".compressor.wgate");
      attention.compressor.norm = norm(name + ".compressor.norm");
      attention.compressor.wk = bf16(name + ".indexer.wk");
      attention.compressor.k_norm = norm(name + ".indexer.k_norm");
    }
    if (topology.index_source == layer) {
      attention.indexer.wq_b = fp8(name + ".indexer.wq_b");
      attention.indexer.weights_proj = bf16(name + ".indexer.weights_proj");
    }
    return attention;
  }

  ExpertViews expert(const std::string& name) {
    return {.w1 = quantised(name + ".w1"), .w3 = quantised(name + ".w3"), .w2 = quantised(name + ".w2")};
  }

  MoeWeights moe(const std::string& name, int64_t count) {
    std::vector<ExpertViews> routed;
    for (int64_t e = 0; e < count; ++e) routed.push_back(expert(concat(name, ".experts.", e)));
    return {.gate = bf16(name + ".gate"),
            .bias = vector(name + ".gate.bias"),
            .bias_image = vector(name + ".gate.bias_vl"),
            .experts = ops_.prepare_experts(routed, expert(name + ".shared_experts"))};
  }

  Ops& ops_;
  const Checkpoint& checkpoint_;
};

}  // namespace

ModelWeights load_weights(Ops& ops, const Checkpoint& checkpoint, const Topology& topology, bool draft) {
  Loader loader(ops, checkpoint);
  ModelWeights weights;
  weights.embed = loader.bf16("embed");
  weights.head = loader.bf16("head");
  weights.norm = loader.norm("norm");
  for (int layer = 0; layer < checkpoint.config().num_hidden_layers; ++layer) {
    weights.layers.push_back(loader.block(concat("layers.", layer), layer, topology[layer]));
  }
  if (draft) weights.draft = loader.draft();
  return weights;
}

}  // namespace folio
