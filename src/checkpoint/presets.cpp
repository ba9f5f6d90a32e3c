#include "checkpoint/presets.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/config.h"

namespace folio {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPublished = R"json({
  "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
  "transformers_version": "5.6.0", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "image_token_id": 129264,
  "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32], "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
  "text_config": {
    "model_type": "deepseek_v41_text", "vocab_size": 129280, "hidden_size": 5120, "moe_intermediate_size": 2304,
    "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512,
    "qk_rope_head_dim": 64, "q_lora_rank": 1280, "o_lora_rank": 1024, "o_groups": 8, "hidden_act": "silu",
    "swiglu_limit": 10.0, "rms_norm_eps": 1e-20, "attention_bias": false, "attention_dropout": 0.0,
    "initializer_range": 0.02, "use_cache": true, "tie_word_embeddings": false, "max_position_embeddings": 1048576,
    "rope_theta": 10000,
    "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536},
    "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 6, "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5, "sliding_window": 128,
    "compress_ratios": [0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    "compress_rope_theta": 160000, "kv_source_layer_ids": [2, 8, 14, 20],
    "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36], "index_n_heads": 32, "index_head_dim": 128,
    "index_topk": 512, "candidate_source_layer_id": 20, "candidate_topk_blocks": 2048, "candidate_block_size": 8,
    "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "engram_layer_ids": [1, 14],
    "engram_num_embeddings": [384006168, 384016682], "engram_max_ngram_size": 4, "engram_vocab_size": 16000000,
    "engram_n_heads": 8, "engram_head_dim": 256, "engram_pad_token_id": 2, "engram_compressed_vocab_size": 99092,
    "num_nextn_predict_layers": 3, "dspark_block_size": 5, "dspark_noise_token_id": 128799,
    "dspark_target_layer_ids": [37, 38, 39], "dspark_markov_rank": 256, "dspark_n_routed_experts": 128,
    "dspark_num_experts_per_tok": 3
  },
  "vision_config": {
    "model_type": "deepseek_v41_vision", "num_hidden_layers": 32, "hidden_size": 1024, "num_attention_heads": 16,
    "intermediate_size": 2816, "patch_size": 14, "rope_theta": 10000, "downsample_ratio": 3,
    "max_image_tokens": 1024, "min_pixels": 295936, "max_wh_ratio": null
  }
})json";

// Members of text_config in which a preset differs from the published one. index_n_heads x index_head_dim is a power of
// four, as in the release, so that the index scale is exact.
const std::map<std::string, const char*> kPresets = {
    // One layer of every kind; layer 6 is an index source that is no KV owner.
    {"nano", R"json({
      "vocab_size": 512, "hidden_size": 128, "moe_intermediate_size": 64, "num_hidden_layers": 8,
      "num_attention_heads": 8, "head_dim": 64, "qk_rope_head_dim": 32, "q_lora_rank": 64, "o_lora_rank": 32,
      "o_groups": 4, "max_position_embeddings": 4096,
      "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 512},
      "n_routed_experts": 16, "num_experts_per_tok": 3, "sliding_window": 16,
      "compress_ratios": [0, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0], "kv_source_layer_ids": [1, 3, 4],
      "index_source_layer_ids": [1, 3, 4, 6], "index_n_heads": 16, "index_head_dim": 64, "index_topk": 16,
      "candidate_source_layer_id": 4, "candidate_topk_blocks": 8, "candidate_block_size": 4,
      "engram_layer_ids": [1, 3], "engram_vocab_size": 101, "engram_n_heads": 2, "engram_head_dim": 32,
      "dspark_noise_token_id": 510, "dspark_target_layer_ids": [5, 6, 7], "dspark_markov_rank": 64,
      "dspark_n_routed_experts": 8, "dspark_num_experts_per_tok": 2
    })json"},
    // More layers and owners, several Reuse layers between sources, two Reindex layers.
    {"mini", R"json({
      "vocab_size": 1024, "hidden_size": 256, "moe_intermediate_size": 128, "num_hidden_layers": 14,
      "num_attention_heads": 8, "head_dim": 128, "qk_rope_head_dim": 64, "q_lora_rank": 128, "o_lora_rank": 64,
      "o_groups": 4, "max_position_embeddings": 8192,
      "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 1024},
      "n_routed_experts": 32, "num_experts_per_tok": 4, "sliding_window": 32,
      "compress_ratios": [0, 0, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0], "kv_source_layer_ids": [2, 5, 7],
      "index_source_layer_ids": [2, 5, 7, 9, 11], "index_n_heads": 16, "index_head_dim": 64, "index_topk": 32,
      "candidate_source_layer_id": 7, "candidate_topk_blocks": 12, "candidate_block_size": 8,
      "engram_layer_ids": [1, 5], "engram_vocab_size": 500, "engram_n_heads": 4, "engram_head_dim": 32,
      "dspark_noise_token_id": 1022, "dspark_target_layer_ids": [11, 12, 13], "dspark_markov_rank": 64,
      "dspark_n_routed_experts": 16, "dspark_num_experts_per_tok": 2
    })json"},
    // The published attention geometry on few layers.
    {"heads", R"json({
      "vocab_size": 512, "hidden_size": 256, "moe_intermediate_size": 128, "num_hidden_layers": 5,
      "num_attention_heads": 16, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 256, "o_lora_rank": 64,
      "o_groups": 8, "max_position_embeddings": 65536, "n_routed_experts": 16, "num_experts_per_tok": 6,
      "sliding_window": 128, "compress_ratios": [0, 2, 1, 1, 1, 0, 0, 0], "kv_source_layer_ids": [1, 2],
      "index_source_layer_ids": [1, 2, 4], "index_n_heads": 32, "index_head_dim": 128, "index_topk": 64,
      "candidate_source_layer_id": 2, "candidate_topk_blocks": 16, "candidate_block_size": 8,
      "engram_layer_ids": [1], "engram_vocab_size": 101, "engram_n_heads": 2, "engram_head_dim": 64,
      "dspark_noise_token_id": 510, "dspark_target_layer_ids": [2, 3, 4], "dspark_markov_rank": 64,
      "dspark_n_routed_experts": 8, "dspark_num_experts_per_tok": 3
    })json"},
    // Lists of several 64-slot chunks on small tensors.
    {"slots", R"json({
      "vocab_size": 512, "hidden_size": 128, "moe_intermediate_size": 64, "num_hidden_layers": 6,
      "num_attention_heads": 8, "head_dim": 64, "qk_rope_head_dim": 32, "q_lora_rank": 64, "o_lora_rank": 32,
      "o_groups": 4, "max_position_embeddings": 8192,
      "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 1024},
      "n_routed_experts": 8, "num_experts_per_tok": 2, "sliding_window": 32,
      "compress_ratios": [0, 2, 2, 1, 1, 1, 0, 0, 0], "kv_source_layer_ids": [1, 3],
      "index_source_layer_ids": [1, 3, 5], "index_n_heads": 16, "index_head_dim": 64, "index_topk": 256,
      "candidate_source_layer_id": 3, "candidate_topk_blocks": 40, "candidate_block_size": 8,
      "engram_layer_ids": [1], "engram_vocab_size": 101, "engram_n_heads": 2, "engram_head_dim": 32,
      "dspark_noise_token_id": 510, "dspark_target_layer_ids": [3, 4, 5], "dspark_markov_rank": 32,
      "dspark_n_routed_experts": 4, "dspark_num_experts_per_tok": 1
    })json"},
    // For measuring, about 2.3 GB; the first 8 of 16 layers are encoder.
    {"bench-cpu", R"json({
      "vocab_size": 16384, "hidden_size": 1024, "moe_intermediate_size": 896, "num_hidden_layers": 16,
      "num_attention_heads": 16, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 384, "o_lora_rank": 256,
      "o_groups": 4, "n_routed_experts": 64, "num_experts_per_tok": 6, "sliding_window": 128,
      "compress_ratios": [0, 0, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0], "kv_source_layer_ids": [2, 5, 8],
      "index_source_layer_ids": [2, 5, 8, 10, 12, 14], "index_n_heads": 16, "index_head_dim": 64, "index_topk": 512,
      "candidate_source_layer_id": 8, "candidate_topk_blocks": 2048, "candidate_block_size": 8,
      "engram_layer_ids": [1, 5], "engram_vocab_size": 20000, "engram_n_heads": 8, "engram_head_dim": 256,
      "dspark_noise_token_id": 16382, "dspark_target_layer_ids": [13, 14, 15], "dspark_markov_rank": 256,
      "dspark_n_routed_experts": 32, "dspark_num_experts_per_tok": 3
    })json"},
};

constexpr const char* kTinyVision = R"json({
  "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "patch_size": 14,
  "rope_theta": 10000, "downsample_ratio": 3, "max_image_tokens": 64, "min_pixels": 7056, "max_wh_ratio": null
})json";

// The published head width where the preset has the published attention.
constexpr const char* kHeadsVision =
    R"json({"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 192})json";

void update(ordered_json& object, const char* members) {
  const ordered_json changes = ordered_json::parse(members);
  for (const auto& [key, value] : changes.items()) object[key] = value;
}

// Table rows per Engram layer.
std::vector<int64_t> table_rows(const ordered_json& text) {
  Config layout;
  layout.engram_layer_ids = text.at("engram_layer_ids").get<std::vector<int>>();
  layout.engram_max_ngram_size = text.at("engram_max_ngram_size").get<int>();
  layout.engram_vocab_size = text.at("engram_vocab_size").get<int64_t>();
  layout.engram_n_heads = text.at("engram_n_heads").get<int64_t>();
  std::vector<int64_t> rows;
  for (const std::vector<int64_t>& columns : engram_primes(layout)) {
    int64_t sum = 0;
    for (const int64_t prime : columns) sum += prime;
    rows.push_back(sum);
  }
  return rows;
}

}  // namespace

std::string published_config_json() { return ordered_json::parse(kPublished).dump(2) + "\n"; }

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = {"nano", "slots", "heads", "mini", "bench-cpu"};
  return names;
}

std::string preset_config_json(const std::string& name, bool vision, int64_t compressed_vocab_size) {
  const auto preset = kPresets.find(name);
  if (preset == kPresets.end()) {
    std::string known;
    for (const std::string& each : preset_names()) known += (known.empty() ? "" : ", ") + each;
    fail(ErrorCode::kInvalidArgument, "there is no preset '", name, "'; there are ", known);
  }
  ordered_json data = ordered_json::parse(kPublished);
  ordered_json& text = data["text_config"];
  update(text, preset->second);
  text["engram_num_embeddings"] = table_rows(text);
  text["engram_compressed_vocab_size"] = compressed_vocab_size;
  data["image_token_id"] = text["vocab_size"].get<int64_t>() - 1;
  if (vision) {
    update(data["vision_config"], kTinyVision);
    if (name == "heads") update(data["vision_config"], kHeadsVision);
  } else {
    data.erase("vision_config");
  }
  return data.dump(2) + "\n";
}

}  // namespace folio
