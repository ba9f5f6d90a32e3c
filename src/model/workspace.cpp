#include "model/workspace.h"

#include <algorithm>

namespace folio {

Workspace::Workspace(Arena& arena, const Config& config, const WorkspaceLimits& limits) {
  const int64_t n = std::max(limits.max_rows, limits.max_draft_rows),
                streams_wide = config.hc_mult * config.hidden_size;
  const int64_t heads_wide = config.num_attention_heads * config.head_dim;
  const auto engram_layers = static_cast<int64_t>(config.engram_layer_ids.size());
  const int64_t columns = engram_layers > 0 ? config.engram_columns() : 0;

  for (RowBuffers* rows : {&all, &decoder, &head}) {
    rows->streams = arena.take<bf16>(n * streams_wide);
    rows->mix = arena.take<float>(n * config.hc_mult);
    rows->input = arena.take<bf16>(n * config.hidden_size);
    rows->positions = arena.take<int32_t>(n);
    rows->image = arena.take<uint8_t>(n);
    rows->rope_plain = arena.take<float>(n * config.qk_rope_head_dim);
    rows->rope_scaled = arena.take<float>(n * config.qk_rope_head_dim);
  }
  ids = arena.take<int32_t>(n);
  compressed = arena.take<int32_t>(n);
  engram_rows = arena.take<int64_t>(engram_layers * n * columns);
  rope_group = arena.take<float>(n * config.qk_rope_head_dim);

  pre = arena.take<float>(n * config.hc_mult);
  post = arena.take<float>(n * config.hc_mult);
  comb = arena.take<float>(n * config.hc_mult * config.hc_mult);
  output = arena.take<bf16>(n * config.hidden_size);

  query_latent = arena.take<bf16>(n * config.q_lora_rank);
  query = arena.take<bf16>(n * heads_wide);
  core = arena.take<bf16>(n * heads_wide);
  latent = arena.take<bf16>(n * config.head_dim);
  window_rows = arena.take<std::byte>(n * limits.window_row_bytes);
  grouped = arena.take<bf16>(n * config.o_groups * config.o_lora_rank);

  compress_kv = arena.take<float>(n * config.head_dim);
  compress_gate = arena.take<float>(n * config.head_dim);
  entry = arena.take<bf16>(n * config.head_dim);
  index_key = arena.take<bf16>(n * config.index_head_dim);
  index_query = arena.take<bf16>(n * config.index_n_heads * config.index_head_dim);
  index_weights = arena.take<bf16>(n * config.index_n_heads);
  selected = arena.take<int32_t>(n * config.index_topk);
  candidates = arena.take<int32_t>(n * config.candidate_topk_blocks);
  index_scores = arena.take<float>(n * limits.trace_scores);

  const bool drafts = limits.max_draft_rows > 0;
  const int64_t experts = std::max(config.num_experts_per_tok, drafts ? config.dspark_num_experts_per_tok : 0);
  expert_ids = arena.take<int32_t>(n * experts);
  expert_weights = arena.take<float>(n * experts);

  engram_input = arena.take<bf16>(n * columns * config.engram_head_dim);
  engram_kv = arena.take<bf16>(engram_layers > 0 ? n * (config.hc_mult + 1) * config.hidden_size : 0);
  engram_gate = arena.take<float>(n * config.hc_mult);

  logits = arena.take<float>(std::max(limits.max_head_rows, limits.max_draft_rows) * config.vocab_size);
  sampled = arena.take<int32_t>(limits.max_head_rows);
  logprobs = arena.take<float>(limits.max_head_rows);
  top = arena.take<TopLogprob>(limits.max_head_rows * kMaxTopLogprobs);

  taps = arena.take<bf16>(drafts ? n * std::ssize(config.dspark_target_layer_ids) * config.hidden_size : 0);
  committed = arena.take<int32_t>(n);
  draft_tokens = arena.take<int32_t>(limits.max_draft_rows);
  confidences = arena.take<float>(limits.max_draft_rows);
  draft_candidates = arena.take<DraftCandidate>(limits.max_draft_rows * kDraftCandidates);
}

}  // namespace folio
