// config.json of a checkpoint: the published keys, checked as a whole (spec/model.md 1, spec/runtime.md 8.2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace folio {

// `vision_config`. Norms of the tower use eps 1e-6, which the file does not say.
struct VisionConfig {
  int num_hidden_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;        // pixels
  int64_t downsample_ratio = 0;  // patches per side of a language position
  int64_t max_image_tokens = 0;  // positions of a span, delimiters included
  int64_t min_pixels = 0;
  double rope_theta = 0;

  bool operator==(const VisionConfig&) const = default;
};

// `rope_scaling`: YaRN, on the layers with a compression ratio (5.3).
struct RopeScaling {
  double factor = 0;
  double beta_fast = 0;
  double beta_slow = 0;
  int64_t original_max_position_embeddings = 0;

  bool operator==(const RopeScaling&) const = default;
};

// Routed experts of a layer and how many of them a token takes.
struct ExpertCount {
  int64_t experts = 0;
  int64_t per_token = 0;

  bool operator==(const ExpertCount&) const = default;
};

// The `text_config` and the few top-level keys that the model needs, under their published names. A Config that
// parse_config() returned satisfies every rule that the arithmetic and the topology need; keys that have one legal
// value (n_shared_experts, scoring_func, ...) are checked and not kept.
struct Config {
  int32_t bos_token_id = 0;
  int32_t eos_token_id = 0;
  int32_t pad_token_id = 0;
  int32_t image_token_id = -1;  // -1: none

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t moe_intermediate_size = 0;
  int num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  double swiglu_limit = 0;
  double rms_norm_eps = 0;
  int64_t max_position_embeddings = 0;
  double rope_theta = 0;           // base of layers with ratio 0
  double compress_rope_theta = 0;  // base of layers with a ratio
  std::optional<RopeScaling> rope_scaling;

  int64_t n_routed_experts = 0;
  int64_t num_experts_per_tok = 0;
  double routed_scaling_factor = 0;

  int64_t sliding_window = 0;        // positions, the query's own included
  std::vector<int> compress_ratios;  // [num_hidden_layers + num_nextn_predict_layers]
  std::vector<int> kv_source_layer_ids;
  std::vector<int> index_source_layer_ids;
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int candidate_source_layer_id = -1;  // -1: none
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;

  int64_t hc_mult = 0;  // residual streams
  int hc_sinkhorn_iters = 0;
  double hc_eps = 0;

  std::vector<int> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // table rows, per engram layer
  int engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;  // where the search for bucket primes starts
  int64_t engram_n_heads = 0;     // per n-gram order
  int64_t engram_head_dim = 0;
  int32_t engram_pad_token_id = 0;  // raw id
  int64_t engram_compressed_vocab_size = 0;

  int num_nextn_predict_layers = 0;  // DSpark stages; with 0 the dspark_ members are unset
  int64_t dspark_block_size = 0;
  int32_t dspark_noise_token_id = 0;
  std::vector<int> dspark_target_layer_ids;
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;
  int64_t dspark_num_experts_per_tok = 0;

  std::optional<VisionConfig> vision;

  // Blocks of the backbone and of the draft head together; the stages follow the backbone in `layer` arguments.
  int total_layers() const { return num_hidden_layers + num_nextn_predict_layers; }
  // Compression ratio of a layer or stage: 0 (window only), 1 or 2.
  int ratio(int layer) const { return compress_ratios[static_cast<size_t>(layer)]; }
  ExpertCount experts_of(int layer) const;
  bool is_kv_source(int layer) const;
  bool is_index_source(int layer) const;
  // Position of `layer` in engram_layer_ids, or -1.
  int engram_index(int layer) const;
  // Hash columns of an engram layer, order-major: (orders) x (heads).
  int64_t engram_columns() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
  // Values that the coefficients of one hyper-connection site have: pre, post and comb (4.3).
  int64_t hc_mix_size() const { return (2 + hc_mult) * hc_mult; }

  bool operator==(const Config&) const = default;
};

// Bucket sizes [engram layer][column] (8.2): the primes from engram_vocab_size on, each used once. Their sum over a
// layer's columns is its number of table rows.
std::vector<std::vector<int64_t>> engram_primes(const Config& config);

// Parses config.json. `origin` names the file in messages. Throws Error(kInvalidConfig) with every reason in one
// message.
Config parse_config(std::string_view json, const std::string& origin);

// Reads and parses `dir`/config.json. Throws Error(kNotFound) when there is none.
Config load_config(const std::string& dir);

}  // namespace folio
