#include "checkpoint/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/memory.h"
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
constexpr int64_t kMaxExpertTensors = 1 << 16;
constexpr int64_t kMaxEngramColumns = 1024;
constexpr int64_t kMaxEngramVocabulary = 1 << 30;
constexpr int64_t kQuantBlock = 32;

// A value as it is shown in a message.
std::string shown(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 8) return concat("a list of ", value.size(), " values");
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 80) + "...";
}

// One JSON object: reads members by key, and notes what is wrong with them.
class Section {
 public:
  // `object` may be null for a part that is not there: then every read quietly gives a default.
  Section(const json* object, std::string path, std::vector<std::string>& reasons)
      : object_(object), path_(std::move(path)), reasons_(reasons) {}

  // The member, or null (with a reason when it is required).
  const json* find(const char* key, bool required) {
    if (object_ == nullptr) return nullptr;
    const auto member = object_->find(key);
    if (member != object_->end()) return &*member;
    if (required) complain(key, "is missing");
    return nullptr;
  }

  void complain(const std::string& key, const std::string& what) {
    reasons_.push_back(path_ + key + " " + what);
    bad_.insert(key);
  }

  // A sub-object; a null Section when it is absent or not an object.
  Section section(const char* key, bool required) {
    const json* member = find(key, required);
    if (member != nullptr && !member->is_object()) {
      complain(key, concat("must be an object, is ", shown(*member)));
      member = nullptr;
    }
    if (member == nullptr) bad_.insert(key);
    return Section(member, path_ + key + ".", reasons_);
  }

  // The member must equal `expected`. An absent one is a reason only when it is required.
  void constant(const char* key, const json& expected, bool required) {
    const json* member = find(key, required);
    if (member == nullptr || *member == expected) return;
    complain(key, concat("must be ", expected.dump(), ", is ", shown(*member)));
  }

  template <typename Integer>
  void read(Integer& value, const char* key, int64_t low, int64_t high, bool required = true) {
    const json* member = find(key, required);
    if (member == nullptr) {
      bad_.insert(key);
      return;
    }
    if (const auto number = integer(*member, low, high)) {
      value = static_cast<Integer>(*number);
    } else {
      complain(key, concat("must be an integer from ", low, " to ", high, ", is ", shown(*member)));
    }
  }

  // A finite number with low <= value <= high.
  void read_real(double& value, const char* key, double low, double high) {
    const json* member = find(key, true);
    if (member == nullptr) {
      bad_.insert(key);
      return;
    }
    const double number = member->is_number() ? member->get<double>() : std::nan("");
    if (number >= low && number <= high) {
      value = number;
    } else {
      complain(key, concat("must be a number from ", low, " to ", high, ", is ", shown(*member)));
    }
  }

  template <typename Integer>
  void read_list(std::vector<Integer>& values, const char* key, size_t max_count, int64_t low, int64_t high) {
    const json* member = find(key, true);
    if (member == nullptr) {
      bad_.insert(key);
      return;
    }
    if (!member->is_array() || member->size() > max_count) {
      complain(key, concat("must be a list of at most ", max_count, " integers, is ", shown(*member)));
      return;
    }
    for (size_t i = 0; i < member->size(); ++i) {
      const auto number = integer((*member)[i], low, high);
      if (!number) {
        complain(concat(key, "[", i, "]"),
                 concat("must be an integer from ", low, " to ", high, ", is ", shown((*member)[i])));
        bad_.insert(key);
      }
      values.push_back(static_cast<Integer>(number.value_or(low)));
    }
  }

  // Notes `message` when `holds` is false; not evaluated when one of `keys` could not be read.
  void rule(std::initializer_list<const char*> keys, const std::function<bool()>& holds,
            const std::function<std::string()>& message) {
    if (object_ == nullptr || !readable(keys)) return;
    if (!holds()) reasons_.push_back(path_ + message());
  }
  bool readable(std::initializer_list<const char*> keys) const {
    return object_ != nullptr &&
           std::none_of(keys.begin(), keys.end(), [&](const char* key) { return bad_.count(key); });
  }
  bool present() const { return object_ != nullptr; }

 private:
  static std::optional<int64_t> integer(const json& value, int64_t low, int64_t high) {
    if (!value.is_number_integer()) return std::nullopt;
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    const auto number = value.get<int64_t>();
    if (number < low || number > high) return std::nullopt;
    return number;
  }

  const json* object_;
  std::string path_;
  std::vector<std::string>& reasons_;
  std::set<std::string> bad_;  // keys that have no usable value
};

bool contains(const std::vector<int>& sorted, int value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

// The largest member of sorted `sources` that is <= layer, or -1.
int last_source(const std::vector<int>& sources, int layer) {
  const auto after = std::upper_bound(sources.begin(), sources.end(), layer);
  return after == sources.begin() ? -1 : *std::prev(after);
}

bool strictly_ascending(const std::vector<int>& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), [](int a, int b) { return a >= b; }) == ids.end();
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
void read_identity(Section& top) {
  top.constant("architectures", json::array({"DeepseekV41ForCausalLM"}), true);
  top.constant("model_type", "deepseek_v41", true);
  top.constant("dtype", "bfloat16", false);
  Section quantization = top.section("quantization_config", true);
  quantization.constant("quant_method", "fp8", true);
  quantization.constant("activation_scheme", "dynamic", true);
  quantization.constant("weight_block_size", json::array({kQuantBlock, kQuantBlock}), true);
  quantization.constant("scale_fmt", "ue8m0", true);
  quantization.constant("expert_dtype", "fp4", true);
}

void read_constants(Section& text) {
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

void read_block_dims(Section& text, Config& c) {
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
  Section yarn = text.section("rope_scaling", true);
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

void read_attention_schedule(Section& text, Config& c) {
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

void read_engram(Section& text, Config& c) {
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

void read_drafts(Section& text, Config& c) {
  text.read(c.num_nextn_predict_layers, "num_nextn_predict_layers", 0, 16);
  if (c.num_nextn_predict_layers == 0) return;
  text.read(c.dspark_block_size, "dspark_block_size", 1, 64);
  text.read(c.dspark_noise_token_id, "dspark_noise_token_id", 0, kMaxVocabulary);
  text.read_list(c.dspark_target_layer_ids, "dspark_target_layer_ids", 16, 0, kMaxLayers);
  text.read(c.dspark_markov_rank, "dspark_markov_rank", 1, kMaxWidth);
  text.read(c.dspark_n_routed_experts, "dspark_n_routed_experts", 1, 4096);
  text.read(c.dspark_num_experts_per_tok, "dspark_num_experts_per_tok", 1, 64);
}

void read_vision(Section& top, Config& c) {
  const json* member = top.find("vision_config", false);
  if (member == nullptr || member->is_null()) return;
  Section vision = top.section("vision_config", true);
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

// What the quantised linears and the cache rows need from the sizes.
void check_dims(Section& text, const Config& c) {
  const auto multiple = [&](const char* key, int64_t value) {
    text.rule(
        {key}, [=] { return value % kQuantBlock == 0; },
        [=] { return concat(key, " (", value, ") must be a multiple of ", kQuantBlock, ", the quantisation block"); });
  };
  multiple("hidden_size", c.hidden_size);
  multiple("moe_intermediate_size", c.moe_intermediate_size);
  multiple("head_dim", c.head_dim);
  multiple("q_lora_rank", c.q_lora_rank);
  multiple("index_head_dim", c.index_head_dim);
  if (!c.engram_layer_ids.empty()) multiple("engram_head_dim", c.engram_head_dim);
  text.rule(
      {"o_groups", "o_lora_rank"}, [&] { return c.o_groups * c.o_lora_rank % kQuantBlock == 0; },
      [&] {
        return concat("o_groups x o_lora_rank (", c.o_groups * c.o_lora_rank, ") must be a multiple of ", kQuantBlock);
      });
  text.rule(
      {"num_attention_heads", "o_groups"}, [&] { return c.num_attention_heads % c.o_groups == 0; },
      [&] {
        return concat("num_attention_heads (", c.num_attention_heads, ") must be a multiple of o_groups (", c.o_groups,
                      ")");
      });
  text.rule(
      {"qk_rope_head_dim"}, [&] { return c.qk_rope_head_dim % 2 == 0; },
      [&] { return concat("qk_rope_head_dim (", c.qk_rope_head_dim, ") must be even"); });
  text.rule(
      {"qk_rope_head_dim", "head_dim", "index_head_dim"},
      [&] { return c.qk_rope_head_dim <= std::min(c.head_dim, c.index_head_dim); },
      [&] {
        return concat("qk_rope_head_dim (", c.qk_rope_head_dim, ") must not exceed head_dim (", c.head_dim,
                      ") or index_head_dim (", c.index_head_dim, ")");
      });
  text.rule(
      {"num_experts_per_tok", "n_routed_experts"}, [&] { return c.num_experts_per_tok <= c.n_routed_experts; },
      [&] {
        return concat("num_experts_per_tok (", c.num_experts_per_tok, ") must not exceed n_routed_experts (",
                      c.n_routed_experts, ")");
      });
  text.rule(
      {"num_hidden_layers", "n_routed_experts"},
      [&] { return c.num_hidden_layers * c.n_routed_experts <= kMaxExpertTensors; },
      [&] {
        return concat("num_hidden_layers x n_routed_experts (", c.num_hidden_layers * c.n_routed_experts,
                      ") is more than the supported ", kMaxExpertTensors);
      });
}

// Sorted, unique, in range. Returns whether the other rules may use the list.
bool check_layer_ids(Section& text, const char* key, const std::vector<int>& ids, int layers) {
  text.rule(
      {key}, [&] { return strictly_ascending(ids); },
      [&] { return concat(key, " must be ascending without repeats"); });
  for (const int id : ids) {
    text.rule(
        {key, "num_hidden_layers"}, [&] { return id < layers; },
        [&] { return concat(key, " names layer ", id, ", but num_hidden_layers is ", layers); });
  }
  return text.readable({key, "num_hidden_layers"}) && strictly_ascending(ids) &&
         std::all_of(ids.begin(), ids.end(), [&](int id) { return id < layers; });
}

// Every layer with a ratio has its sources; candidates stay with one owner.
void check_sources(Section& text, const Config& c) {
  const auto complain = [&](const std::string& what) { text.rule({}, [] { return false; }, [&] { return what; }); };
  for (const int id : c.kv_source_layer_ids) {
    if (!contains(c.index_source_layer_ids, id)) {
      complain(concat("kv_source_layer_ids: layer ", id, " must also be in index_source_layer_ids"));
    }
  }
  for (const int id : c.index_source_layer_ids) {
    if (c.ratio(id) == 0) {
      complain(concat("layer ", id,
                      " has compress_ratios 0, so it cannot be in kv_source_layer_ids or index_source_layer_ids"));
    }
  }
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (c.ratio(layer) == 0) continue;
    const int owner = last_source(c.kv_source_layer_ids, layer);
    if (owner < 0 || c.ratio(owner) != c.ratio(layer)) {
      complain(
          concat("layer ", layer, " with compress_ratios ", c.ratio(layer),
                 " needs a layer in kv_source_layer_ids at or before it with the same ratio, and ",
                 owner < 0 ? std::string("there is none") : concat("layer ", owner, " has ratio ", c.ratio(owner))));
    }
    if (last_source(c.index_source_layer_ids, layer) < 0) {
      complain(concat("layer ", layer, " needs a layer in index_source_layer_ids at or before it"));
    }
  }
}

void check_candidates(Section& text, const Config& c) {
  const int source = c.candidate_source_layer_id;
  if (source < 0) return;
  text.rule(
      {"candidate_source_layer_id"}, [&] { return contains(c.index_source_layer_ids, source); },
      [&] {
        return concat("candidate_source_layer_id (", source, ") must be in index_source_layer_ids, or -1 for none");
      });
  const int owner = last_source(c.kv_source_layer_ids, source);
  for (const int id : c.index_source_layer_ids) {
    text.rule(
        {"candidate_source_layer_id"}, [&] { return id <= source || last_source(c.kv_source_layer_ids, id) == owner; },
        [&] {
          return concat("index_source_layer_ids: layer ", id, " would read the candidates of layer ", source,
                        ", which index the keys of another layer of kv_source_layer_ids");
        });
  }
  // The newest block may hold one entry only (spec/model.md 6.7).
  text.rule(
      {"candidate_topk_blocks", "candidate_block_size", "index_topk"},
      [&] { return (c.candidate_topk_blocks - 1) * c.candidate_block_size + 1 >= c.index_topk; },
      [&] {
        return concat("candidate blocks must be able to hold a whole top-k: (candidate_topk_blocks (",
                      c.candidate_topk_blocks, ") - 1) x candidate_block_size (", c.candidate_block_size,
                      ") + 1 is less than index_topk (", c.index_topk, ")");
      });
}

void check_schedule(Section& text, const Config& c) {
  const bool owners = check_layer_ids(text, "kv_source_layer_ids", c.kv_source_layer_ids, c.num_hidden_layers);
  const bool sources = check_layer_ids(text, "index_source_layer_ids", c.index_source_layer_ids, c.num_hidden_layers);
  const std::initializer_list<const char*> counted = {"compress_ratios", "num_hidden_layers",
                                                      "num_nextn_predict_layers"};
  text.rule(
      counted, [&] { return std::ssize(c.compress_ratios) == c.total_layers(); },
      [&] {
        return concat("compress_ratios has ", c.compress_ratios.size(), " entries, but needs one for each of the ",
                      c.num_hidden_layers, " layers and ", c.num_nextn_predict_layers, " draft stages");
      });
  if (!text.readable(counted) || std::ssize(c.compress_ratios) != c.total_layers()) return;
  for (int layer = c.num_hidden_layers; layer < c.total_layers(); ++layer) {
    text.rule(
        {}, [&] { return c.ratio(layer) == 0; },
        [&] {
          return concat("compress_ratios[", layer, "] is ", c.ratio(layer), ", but a draft stage is window-only (0)");
        });
  }
  if (!owners || !sources) return;
  check_sources(text, c);
  check_candidates(text, c);
}

void check_engram(Section& text, const Config& c) {
  check_layer_ids(text, "engram_layer_ids", c.engram_layer_ids, c.num_hidden_layers);
  text.rule(
      {"engram_layer_ids", "engram_num_embeddings"},
      [&] { return c.engram_layer_ids.size() == c.engram_num_embeddings.size(); },
      [&] {
        return concat("engram_num_embeddings has ", c.engram_num_embeddings.size(), " entries for the ",
                      c.engram_layer_ids.size(), " layers of engram_layer_ids");
      });
  if (c.engram_layer_ids.empty()) return;
  text.rule(
      {"engram_pad_token_id", "vocab_size"}, [&] { return c.engram_pad_token_id < c.vocab_size; },
      [&] {
        return concat("engram_pad_token_id (", c.engram_pad_token_id, ") must be below vocab_size (", c.vocab_size,
                      ")");
      });
  text.rule(
      {"engram_compressed_vocab_size", "vocab_size"}, [&] { return c.engram_compressed_vocab_size <= c.vocab_size; },
      [&] {
        return concat("engram_compressed_vocab_size (", c.engram_compressed_vocab_size,
                      ") must not exceed vocab_size (", c.vocab_size, ")");
      });
  if (!text.readable({"engram_layer_ids", "engram_num_embeddings", "engram_max_ngram_size", "engram_n_heads",
                      "engram_vocab_size"}) ||
      c.engram_layer_ids.size() != c.engram_num_embeddings.size()) {
    return;
  }
  const int64_t columns = c.engram_columns() * std::ssize(c.engram_layer_ids);
  text.rule(
      {}, [&] { return columns <= kMaxEngramColumns; },
      [&] { return concat("engram hash columns over all layers (", columns, ") exceed ", kMaxEngramColumns); });
  if (columns > kMaxEngramColumns) return;
  const auto primes = engram_primes(c);
  for (size_t i = 0; i < primes.size(); ++i) {
    int64_t rows = 0;
    for (const int64_t prime : primes[i]) rows += prime;
    text.rule(
        {}, [&] { return rows == c.engram_num_embeddings[i]; },
        [&] {
          return concat("engram_num_embeddings[", i, "] is ", c.engram_num_embeddings[i],
                        ", but the bucket primes from ", c.engram_vocab_size, " on sum to ", rows);
        });
  }
}

void check_drafts(Section& text, const Config& c) {
  if (c.num_nextn_predict_layers == 0) return;
  check_layer_ids(text, "dspark_target_layer_ids", c.dspark_target_layer_ids, c.num_hidden_layers);
  text.rule(
      {"dspark_target_layer_ids"}, [&] { return !c.dspark_target_layer_ids.empty(); },
      [] { return std::string("dspark_target_layer_ids must name at least one layer"); });
  text.rule(
      {"dspark_noise_token_id", "vocab_size"}, [&] { return c.dspark_noise_token_id < c.vocab_size; },
      [&] {
        return concat("dspark_noise_token_id (", c.dspark_noise_token_id, ") must be below vocab_size (", c.vocab_size,
                      ")");
      });
  text.rule(
      {"dspark_num_experts_per_tok", "dspark_n_routed_experts"},
      [&] { return c.dspark_num_experts_per_tok <= c.dspark_n_routed_experts; },
      [&] {
        return concat("dspark_num_experts_per_tok (", c.dspark_num_experts_per_tok,
                      ") must not exceed dspark_n_routed_experts (", c.dspark_n_routed_experts, ")");
      });
}

void read_token_ids(Section& top, const Section& text, Config& c) {
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
  Section top(&root, "", reasons);
  read_identity(top);
  Section text = top.section("text_config", true);
  read_constants(text);
  read_block_dims(text, c);
  read_attention_schedule(text, c);
  read_engram(text, c);
  read_drafts(text, c);
  read_vision(top, c);
  read_token_ids(top, text, c);
  check_dims(text, c);
  check_schedule(text, c);
  check_engram(text, c);
  check_drafts(text, c);
  if (!reasons.empty()) fail(ErrorCode::kInvalidConfig, join_reasons(origin, reasons, 50));
  return c;
}

Config load_config(const std::string& dir) {
  const std::string path = (std::filesystem::path(dir) / "config.json").string();
  return parse_config(read_file(path, kMaxConfigBytes), path);
}

}  // namespace folio
