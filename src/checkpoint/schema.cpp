#include "checkpoint/schema.h"

#include <array>
#include <cstdio>

namespace folio {
namespace {

class SchemaBuilder {
 public:
  explicit SchemaBuilder(const Config& config) : c_(config), d_(config.hidden_size) {}

  std::vector<TensorSpec> build() {
    if (c_.vision) vision(*c_.vision);
    at(embedding_shard(), Part::kEmbedding);
    put("embed.weight", DType::kBF16, {c_.vocab_size, d_});
    if (c_.vision) {
      for (const char* name : {"image_start", "image_end", "image_newline"}) put(name, DType::kBF16, {d_});
    }
    for (int layer = 0; layer < c_.num_hidden_layers; ++layer) backbone_layer(layer);
    at(embedding_shard() + 1 + c_.num_hidden_layers, Part::kHead);
    put("head.weight", DType::kBF16, {c_.vocab_size, d_});
    put("norm.weight", DType::kBF16, {d_});
    for (int stage = 0; stage < c_.num_nextn_predict_layers; ++stage) draft_stage(stage);
    for (const int layer : c_.engram_layer_ids) engram(layer);
    return std::move(tensors_);
  }

 private:
  int embedding_shard() const { return c_.vision ? 1 : 0; }

  // Shard and part of the tensors put from here on.
  void at(int shard, Part part) {
    shard_ = shard;
    part_ = part;
  }
  // The part within a block; everything of a draft stage is kDraft.
  void in(Part part) {
    if (part_ != Part::kDraft) part_ = part;
  }

  void put(const std::string& name, DType dtype, Shape shape) {
    tensors_.push_back({name, dtype, shape, shard_, part_});
  }

  // FP8 with one scale per 32 x 32 tile.
  void fp8(const std::string& name, int64_t rows, int64_t columns) {
    put(name + ".weight", DType::kF8E4M3, {rows, columns});
    put(name + ".scale", DType::kF8E8M0, {(rows + 31) / 32, (columns + 31) / 32});
  }

  // Packed FP4 with one scale per row and 32 columns.
  void fp4(const std::string& name, int64_t rows, int64_t columns) {
    put(name + ".weight", DType::kI8, {rows, columns / 2});
    put(name + ".scale", DType::kF8E8M0, {rows, columns / 32});
  }

  // What backbone layers and draft stages have in common (3.2).
  void block(const std::string& prefix, int layer) {
    const int64_t heads = c_.num_attention_heads;
    const std::string attn = prefix + ".attn";
    in(Part::kAttention);
    fp8(attn + ".wq_a", c_.q_lora_rank, d_);
    fp8(attn + ".wq_b", heads * c_.head_dim, c_.q_lora_rank);
    fp8(attn + ".wkv", c_.head_dim, d_);
    fp8(attn + ".wo_a", c_.o_groups * c_.o_lora_rank, heads * c_.head_dim / c_.o_groups);
    fp8(attn + ".wo_b", d_, c_.o_groups * c_.o_lora_rank);
    put(attn + ".q_norm.weight", DType::kBF16, {c_.q_lora_rank});
    put(attn + ".kv_norm.weight", DType::kBF16, {c_.head_dim});
    put(attn + ".attn_sink", DType::kF32, {heads});
    for (const char* site : {"attn", "ffn"}) {
      in(Part::kNorms);
      put(prefix + "." + site + "_norm.weight", DType::kBF16, {d_});
      in(Part::kHyperConnections);
      const std::string hyper = prefix + ".hc_" + site;
      put(hyper + "_fn", DType::kF32, {c_.hc_mix_size(), c_.hc_mult * d_});
      put(hyper + "_base", DType::kF32, {c_.hc_mix_size()});
      put(hyper + "_scale", DType::kF32, {3});
    }
    mixture(prefix + ".ffn", c_.experts_of(layer).experts);
  }

  void mixture(const std::string& ffn, int64_t experts) {
    const int64_t inner = c_.moe_intermediate_size;
    in(Part::kRouter);
    put(ffn + ".gate.weight", DType::kBF16, {experts, d_});
    put(ffn + ".gate.bias", DType::kF32, {experts});
    put(ffn + ".gate.bias_vl", DType::kF32, {experts});
    in(Part::kSharedExperts);
    fp8(ffn + ".shared_experts.w1", inner, d_);
    fp8(ffn + ".shared_experts.w3", inner, d_);
    fp8(ffn + ".shared_experts.w2", d_, inner);
    in(Part::kRoutedExperts);
    for (int64_t e = 0; e < experts; ++e) {
      const std::string expert = ffn + ".experts." + std::to_string(e);
      fp4(expert + ".w1", inner, d_);
      fp4(expert + ".w3", inner, d_);
      fp4(expert + ".w2", d_, inner);
    }
  }

  void backbone_layer(int layer) {
    const std::string prefix = "layers." + std::to_string(layer);
    at(embedding_shard() + 1 + layer, Part::kAttention);
    block(prefix, layer);
    if (c_.is_kv_source(layer)) {
      in(Part::kCompressor);
      const std::string compressor = prefix + ".attn.compressor";
      put(compressor + ".wkv.weight", DType::kBF16, {c_.head_dim, d_});
      if (c_.ratio(layer) > 1) put(compressor + ".wgate.weight", DType::kBF16, {c_.head_dim, d_});
      put(compressor + ".norm.weight", DType::kBF16, {c_.head_dim});
      put(prefix + ".attn.indexer.wk.weight", DType::kBF16, {c_.index_head_dim, c_.head_dim});
      put(prefix + ".attn.indexer.k_norm.weight", DType::kBF16, {c_.index_head_dim});
    }
    if (c_.is_index_source(layer)) {
      in(Part::kIndexer);
      fp8(prefix + ".attn.indexer.wq_b", c_.index_n_heads * c_.index_head_dim, c_.q_lora_rank);
      put(prefix + ".attn.indexer.weights_proj.weight", DType::kBF16, {c_.index_n_heads, d_});
    }
  }

  void engram(int layer) {
    const int index = c_.engram_index(layer);
    const int64_t rows = c_.engram_num_embeddings[static_cast<size_t>(index)];
    const std::string name = "layers." + std::to_string(layer) + ".engram";
    at(shard_count(c_) - static_cast<int>(c_.engram_layer_ids.size()) + index, Part::kEngramTables);
    put(name + ".embed.weight", DType::kF8E4M3, {rows, c_.engram_head_dim});
    put(name + ".embed.scale", DType::kF8E8M0, {rows, c_.engram_head_dim / 32});
    in(Part::kEngramProjections);
    fp8(name + ".wkv", (c_.hc_mult + 1) * d_, c_.engram_columns() * c_.engram_head_dim);
    put(name + ".q_weight", DType::kBF16, {c_.hc_mult, d_});
    put(name + ".k_weight", DType::kBF16, {c_.hc_mult, d_});
  }

  void draft_stage(int stage) {
    const std::string prefix = "mtp." + std::to_string(stage);
    at(embedding_shard() + 2 + c_.num_hidden_layers + stage, Part::kDraft);
    block(prefix, c_.num_hidden_layers + stage);
    if (stage == 0) {
      fp8(prefix + ".main_proj", d_, std::ssize(c_.dspark_target_layer_ids) * d_);
      put(prefix + ".main_norm.weight", DType::kBF16, {d_});
    }
    if (stage == c_.num_nextn_predict_layers - 1) {
      put(prefix + ".norm.weight", DType::kBF16, {d_});
      put(prefix + ".markov_head.embed.weight", DType::kBF16, {c_.vocab_size, c_.dspark_markov_rank});
      put(prefix + ".markov_head.head.weight", DType::kBF16, {c_.vocab_size, c_.dspark_markov_rank});
      put(prefix + ".confidence_head.proj.weight", DType::kBF16, {1, d_ + c_.dspark_markov_rank});
    }
  }

  void vision(const VisionConfig& v) {
    const int64_t width = v.hidden_size;
    const auto dense = [&](const std::string& name, int64_t rows, int64_t columns, bool bias) {
      put(name + ".weight", DType::kBF16, {rows, columns});
      if (bias) put(name + ".bias", DType::kBF16, {rows});
    };
    at(0, Part::kVision);
    dense("vision.patch_embed.proj", width, 3 * v.patch_size * v.patch_size, true);
    for (int b = 0; b < v.num_hidden_layers; ++b) {
      const std::string block = "vision.blocks." + std::to_string(b);
      put(block + ".norm1.weight", DType::kBF16, {width});
      dense(block + ".attn.wqkv", 3 * width, width, true);
      dense(block + ".attn.wo", width, width, true);
      put(block + ".norm2.weight", DType::kBF16, {width});
      dense(block + ".mlp.w1", 2 * v.intermediate_size, width, false);
      dense(block + ".mlp.w2", width, v.intermediate_size, false);
    }
    put("vision.norm.weight", DType::kBF16, {width});
    dense("aligner.w1", d_, width * v.downsample_ratio * v.downsample_ratio, true);
    dense("aligner.w2", d_, d_, true);
  }

  const Config& c_;
  const int64_t d_;
  int shard_ = 0;
  Part part_ = Part::kEmbedding;
  std::vector<TensorSpec> tensors_;
};

}  // namespace

std::string_view part_name(Part part) {
  constexpr std::array<std::string_view, kPartCount> kNames = {
      "embedding",      "head",           "attention",         "compressor", "indexer",       "router",
      "routed experts", "shared experts", "hyper-connections", "norms",      "engram tables", "engram projections",
      "draft",          "vision"};
  return kNames[static_cast<size_t>(part)];
}

std::vector<TensorSpec> make_schema(const Config& config) { return SchemaBuilder(config).build(); }

int shard_count(const Config& config) {
  return (config.vision ? 1 : 0) + 2 + config.total_layers() + static_cast<int>(config.engram_layer_ids.size());
}

std::string shard_file_name(int shard, int count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, count);
  return name;
}

}  // namespace folio
