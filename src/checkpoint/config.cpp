#include "checkpoint/config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/config_rules.h"
#include "checkpoint/config_section.h"
#include "checkpoint/json.h"
#include "checkpoint/text.h"

namespace folio {
namespace {

using nlohmann::json;

// Bounds of what is accepted. They leave room over the published sizes and keep every product of them inside 64 bits,
// and the number of tensors that a config can claim small.
constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr int64_t kMaxWidth = 1 << 16;
constexpr int64_t kMaxVocabulary = 1 << 24;
constexpr int kMaxLayers = 512;
constexpr int64_t kMaxEngramVocabulary = 1 << 30;

bool contains(const std::vector<int>& sorted, int value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

bool is_prime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

// Native quantization and the identity of the architecture.
void read_identity(ConfigSection& top) {
  top.constant("architectures", json::array({"DeepseekV41ForCausalLM"}), true);
  top.constant("model_type", "deepseek_v41", true);
  top.constant("dtype", "bfloat16", false);
  ConfigSection quantization = top.section("quantization_config", true);
  quantization.constant("quant_method", "fp8", true);
  quantization.constant("activation_scheme", "dynamic", true);
  quantization.constant("weight_block_size", json::array({kQuantBlock, kQuantBlock}), true);
  quantization.constant("scale_fmt", "ue8m0", true);
  quantization.constant("expert_dtype", "fp4", true);
}

void read_constants(ConfigSection& text) {
  text.constant("model_type", "deepseek_v41_text", false);
  text.constant("num_key_value_heads", 1, true);
  text.constant("n_shared_experts", 1, true);
  text.constant("scoring_func", "sqrtsoftplus", true);
  text.constant("topk_method", "noaux_tc", true);
  text.constant("norm_topk_prob", true, true);
  text.constant("hidden_act", "silu", false);
  text.constant("attention_bias", false, false);
  text.constant("tie_word_embeddings", false, false);
}

void read_block_dims(ConfigSection& text, Config& c) {
  text.read(c.vocab_size, "vocab_size", 1, kMaxVocabulary);
  text.read(c.hidden_size, "hidden_size", 1, kMaxWidth);
  text.read(c.moe_intermediate_size, "moe_intermediate_size", 1, kMaxWidth);
  text.read(c.num_hidden_layers, "num_hidden_layers", 1, kMaxLayers);
  text.read(c.num_attention_heads, "num_attention_heads", 1, 1024);
  text.read(c.head_dim, "head_dim", 1, 4096);
  text.read(c.qk_rope_head_dim, "qk_rope_head_dim", 2, 4096);
  text.read(c.q_lora_rank, "q_lora_rank", 1, kMaxWidth);
  text.read(c.o_lora_rank, "o_lora_rank", 1, kMaxWidth);
  text.read(c.o_groups, "o_groups", 1, 1024);
  text.read_real(c.swiglu_limit, "swiglu_limit", 1e-3, 1e6);
  text.read_real(c.rms_norm_eps, "rms_norm_eps", 1e-37, 1);
  text.read(c.max_position_embeddings, "max_position_embeddings", 1, 1 << 30);
  text.read_real(c.rope_theta, "rope_theta", 1.0001, 1e12);
  text.read_real(c.compress_rope_theta, "compress_rope_theta", 1.0001, 1e12);
  text.read(c.n_routed_experts, "n_routed_experts", 1, 4096);
  text.read(c.num_experts_per_tok, "num_experts_per_tok", 1, 64);
  text.read_real(c.routed_scaling_factor, "routed_scaling_factor", 1e-6, 1e6);
  text.read(c.hc_mult, "hc_mult", 1, 8);
  text.read(c.hc_sinkhorn_iters, "hc_sinkhorn_iters", 1, 1000);
  text.read_real(c.hc_eps, "hc_eps", 1e-37, 1);

  const json* scaling = text.find("rope_scaling", true);
  if (scaling == nullptr || scaling->is_null()) return;
  ConfigSection yarn = text.section("rope_scaling", true);
  if (!yarn.present()) return;
  RopeScaling& s = c.rope_scaling.emplace();
  yarn.constant("rope_type", "yarn", true);
  yarn.read_real(s.factor, "factor", 1, 1e6);
  yarn.read_real(s.beta_fast, "beta_fast", 1e-3, 1e6);
  yarn.read_real(s.beta_slow, "beta_slow", 1e-3, 1e6);
  yarn.read(s.original_max_position_embeddings, "original_max_position_embeddings", 1, 1 << 30);
  yarn.rule(
      {"beta_fast", "beta_slow"}, [&] { return s.beta_fast > s.beta_slow; },
      [&] { return concat("beta_fast (", s.beta_fast, ") must be larger than beta_slow (", s.beta_slow, ")"); });
}

void read_attention_schedule(ConfigSection& text, Config& c) {
  text.read(c.sliding_window, "sliding_window", 1, kMaxWidth);
  text.read_list(c.compress_ratios, "compress_ratios", 2 * kMaxLayers, 0, 2);
  text.read_list(c.kv_source_layer_ids, "kv_source_layer_ids", kMaxLayers, 0, kMaxLayers);
  text.read_list(c.index_source_layer_ids, "index_source_layer_ids", kMaxLayers, 0, kMaxLayers);
  text.read(c.index_n_heads, "index_n_heads", 1, 1024);
  text.read(c.index_head_dim, "index_head_dim", 1, 4096);
  text.read(c.index_topk, "index_topk", 1, kMaxWidth);
  text.read(c.candidate_source_layer_id, "candidate_source_layer_id", -1, kMaxLayers);
  text.read(c.candidate_topk_blocks, "candidate_topk_blocks", 1, kMaxWidth);
  text.read(c.candidate_block_size, "candidate_block_size", 1, 1024);
}

void read_engram(ConfigSection& text, Config& c) {
  text.read_list(c.engram_layer_ids, "engram_layer_ids", 64, 0, kMaxLayers);
  text.read_list(c.engram_num_embeddings, "engram_num_embeddings", 64, 1, INT64_C(1) << 42);
  const bool used = !c.engram_layer_ids.empty();  // without Engram layers its sizes may be absent
  text.read(c.engram_max_ngram_size, "engram_max_ngram_size", 2, 8, used);
  text.read(c.engram_vocab_size, "engram_vocab_size", 1, kMaxEngramVocabulary, used);
  text.read(c.engram_n_heads, "engram_n_heads", 1, kMaxEngramColumns, used);
  text.read(c.engram_head_dim, "engram_head_dim", 1, 4096, used);
  text.read(c.engram_pad_token_id, "engram_pad_token_id", 0, kMaxVocabulary, used);
  text.read(c.engram_compressed_vocab_size, "engram_compressed_vocab_size", 1, kMaxVocabulary, used);
}

void read_drafts(ConfigSection& text, Config& c) {
  text.read(c.num_nextn_predict_layers, "num_nextn_predict_layers", 0, 16);
  if (c.num_nextn_predict_layers == 0) return;
  text.read(c.dspark_block_size, "dspark_block_size", 1, 64);
  text.read(c.dspark_noise_token_id, "dspark_noise_token_id", 0, kMaxVocabulary);
  text.read_list(c.dspark_target_layer_ids, "dspark_target_layer_ids", 16, 0, kMaxLayers);
  text.read(c.dspark_markov_rank, "dspark_markov_rank", 1, kMaxWidth);
  text.read(c.dspark_n_routed_experts, "dspark_n_routed_experts", 1, 4096);
  text.read(c.dspark_num_experts_per_tok, "dspark_num_experts_per_tok", 1, 64);
}

void read_vision(ConfigSection& top, Config& c) {
  const json* member = top.find("vision_config", false);
  if (member == nullptr || member->is_null()) return;
  ConfigSection vision = top.section("vision_config", true);
  if (!vision.present()) return;
  VisionConfig& v = c.vision.emplace();
  vision.constant("model_type", "deepseek_v41_vision", false);
  vision.read(v.num_hidden_layers, "num_hidden_layers", 1, kMaxLayers);
  vision.read(v.hidden_size, "hidden_size", 1, kMaxWidth);
  vision.read(v.num_attention_heads, "num_attention_heads", 1, 1024);
  vision.read(v.intermediate_size, "intermediate_size", 1, kMaxWidth);
  vision.read(v.patch_size, "patch_size", 1, 256);
  vision.read(v.downsample_ratio, "downsample_ratio", 1, 16);
  vision.read(v.max_image_tokens, "max_image_tokens", 4, kMaxWidth);
  vision.read(v.min_pixels, "min_pixels", 1, INT64_C(1) << 32);
  vision.read_real(v.rope_theta, "rope_theta", 1.0001, 1e12);
  vision.constant("max_wh_ratio", nullptr, false);
  vision.rule(
      {"hidden_size", "num_attention_heads"}, [&] { return v.hidden_size % (4 * v.num_attention_heads) == 0; },
      [&] {
        return concat("hidden_size (", v.hidden_size, ") must be a multiple of 4 x num_attention_heads (",
                      v.num_attention_heads, "), because rows and columns rotate pairs of a head");
      });
}

void read_token_ids(ConfigSection& top, const ConfigSection& text, Config& c) {
  const int64_t last = text.readable({"vocab_size"}) && c.vocab_size > 0 ? c.vocab_size - 1 : kMaxVocabulary;
  top.read(c.bos_token_id, "bos_token_id", 0, last);
  top.read(c.eos_token_id, "eos_token_id", 0, last);
  top.read(c.pad_token_id, "pad_token_id", 0, last);
  // A text-only config may do without one.
  top.read(c.image_token_id, "image_token_id", c.vision ? 0 : -1, last, c.vision.has_value());
}

}  // namespace

ExpertCount Config::experts_of(int layer) const {
  if (layer < num_hidden_layers) return {n_routed_experts, num_experts_per_tok};
  return {dspark_n_routed_experts, dspark_num_experts_per_tok};
}

bool Config::is_kv_source(int layer) const { return contains(kv_source_layer_ids, layer); }
bool Config::is_index_source(int layer) const { return contains(index_source_layer_ids, layer); }

int Config::engram_index(int layer) const {
  const auto found = std::find(engram_layer_ids.begin(), engram_layer_ids.end(), layer);
  return found == engram_layer_ids.end() ? -1 : static_cast<int>(found - engram_layer_ids.begin());
}

std::vector<std::vector<int64_t>> engram_primes(const Config& config) {
  std::vector<std::vector<int64_t>> primes;
  int64_t next = config.engram_vocab_size;
  for (size_t layer = 0; layer < config.engram_layer_ids.size(); ++layer) {
    std::vector<int64_t>& columns = primes.emplace_back();
    while (std::ssize(columns) < config.engram_columns()) {
      while (!is_prime(next)) ++next;
      columns.push_back(next++);
    }
  }
  return primes;
}

Config parse_config(std::string_view text_of_file, const std::string& origin) {
  const json root = parse_json(text_of_file, origin, ErrorCode::kInvalidConfig);
  if (!root.is_object()) fail(ErrorCode::kInvalidConfig, origin, ": must be a JSON object, is ", shown(root));
  std::vector<std::string> reasons;
  Config c;
  ConfigSection top(&root, "", reasons);
  read_identity(top);
  ConfigSection text = top.section("text_config", true);
  read_constants(text);
  read_block_dims(text, c);
  read_attention_schedule(text, c);
  read_engram(text, c);
  read_drafts(text, c);
  read_vision(top, c);
  read_token_ids(top, text, c);
  check_config(text, c);
  if (!reasons.empty()) fail(ErrorCode::kInvalidConfig, join_reasons(origin, reasons, 50));
  return c;
}

Config load_config(const std::string& dir) {
  const std::string path = (std::filesystem::path(dir) / "config.json").string();
  return parse_config(read_file(path, kMaxConfigBytes), path);
}

}  // namespace folio
