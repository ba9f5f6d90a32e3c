#include "checkpoint/config_rules.h"

#include <algorithm>

#include "base/error.h"

namespace folio {
namespace {

constexpr int64_t kMaxExpertTensors = 1 << 16;

// The largest member of sorted `sources` that is <= layer, or -1.
int last_source(const std::vector<int>& sources, int layer) {
  const auto after = std::upper_bound(sources.begin(), sources.end(), layer);
  return after == sources.begin() ? -1 : *std::prev(after);
}

bool strictly_ascending(const std::vector<int>& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), [](int a, int b) { return a >= b; }) == ids.end();
}

// What the quantised linears and the cache rows need from the sizes.
void check_dims(ConfigSection& text, const Config& c) {
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
bool check_layer_ids(ConfigSection& text, const char* key, const std::vector<int>& ids, int layers) {
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
void check_sources(ConfigSection& text, const Config& c) {
  const auto complain = [&](const std::string& what) { text.rule({}, [] { return false; }, [&] { return what; }); };
  for (const int id : c.kv_source_layer_ids) {
    if (!c.is_index_source(id)) {
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

void check_candidates(ConfigSection& text, const Config& c) {
  const int source = c.candidate_source_layer_id;
  if (source < 0) return;
  text.rule(
      {"candidate_source_layer_id"}, [&] { return c.is_index_source(source); },
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

void check_schedule(ConfigSection& text, const Config& c) {
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

void check_engram(ConfigSection& text, const Config& c) {
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

void check_drafts(ConfigSection& text, const Config& c) {
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

}  // namespace

void check_config(ConfigSection& text, const Config& config) {
  check_dims(text, config);
  check_schedule(text, config);
  check_engram(text, config);
  check_drafts(text, config);
}

}  // namespace folio
