// Attention over the window and the selected compressed entries (spec/model.md 5 and 6).
#include "model/transformer.h"

#include <cmath>

namespace folio {

void Transformer::keys(Pass& pass, int layer) {
  const AttentionWeights& weights = weights_.layers[static_cast<size_t>(layer)].attention;
  const StepInputs& in = pass.step.inputs;
  const int64_t dim = config_.head_dim;
  const RingRows& ring = pass.cache.window[static_cast<size_t>(layer)];
  if (topology_[layer].kv_owner == layer) compress(pass, layer);

  // From the last owner on, rows before decoder_start have nobody left to read them.
  if (layer == topology_.first_decoder_layer && in.num_decoder_rows != in.num_rows) {
    narrow(pass, ws_.decoder, in.decoder_rows, in.num_decoder_rows);
    pass.row_buffers = &ws_.decoder;
    pass.rows.count = in.num_decoder_rows;
    pass.rows.spans = in.decoder_spans;
    pass.rows.request = in.decoder_request;
    pass.rows.position = ws_.decoder.positions;
    pass.rows.image = ws_.decoder.image;
    if (pass.count == 0) return;
  }

  const int64_t n = pass.count;
  if (has_draft_head()) tap(pass, layer);
  window_latent(weights, pass.at->input, n, topology_[layer].ratio == 0 ? pass.at->rope_plain : pass.at->rope_scaled);
  pass.trace.window(concat("layers.", layer, ".window"), ws_.latent, n, dim);
  ops_.encode_window({.x = ws_.latent, .rows = n, .ring = ring, .out = ws_.window_rows});

  // In the last layer only rows that need logits have a query. A trace shows them all.
  if (layer == config_.num_hidden_layers - 1 && n != in.num_head_rows && !pass.trace.on()) {
    if (in.num_head_rows > 0) {
      narrow(pass, ws_.head, in.head_in_decoder, in.num_head_rows);
      pass.query_rows = in.head_in_decoder;
    } else {
      ops_.write_window({.rows = pass.rows, .encoded = ws_.window_rows, .ring = ring});
      pass.count = 0;
    }
  }
}

void Transformer::window_latent(const AttentionWeights& weights, const bf16* input, int64_t rows, const float* rope) {
  ops_.quantized_linear({.weight = weights.wkv.get(), .x = input, .rows = rows, .out = ws_.latent});
  norm(ws_.latent, weights.kv_norm.get(), rows, ws_.latent);
  rotate(ws_.latent, rows, 1, config_.head_dim, rope);
}

void Transformer::queries(Pass& pass, const AttentionWeights& weights, const float* rope, const std::string& key) {
  const int64_t n = pass.count;
  ops_.quantized_linear({.weight = weights.wq_a.get(), .x = pass.at->input, .rows = n, .out = ws_.query_latent});
  norm(ws_.query_latent, weights.q_norm.get(), n, ws_.query_latent);
  pass.trace.put(key + ".attn.qr", ws_.query_latent, {n, config_.q_lora_rank});
  ops_.quantized_linear({.weight = weights.wq_b.get(), .x = ws_.query_latent, .rows = n, .out = ws_.query});
  rotate(ws_.query, n, config_.num_attention_heads, config_.head_dim, rope);
}

void Transformer::attention_output(Pass& pass, const AttentionWeights& weights, const float* rope) {
  const int64_t n = pass.count;
  rotate(ws_.core, n, config_.num_attention_heads, config_.head_dim, rope, true);
  ops_.grouped_linear(
      {.weight = weights.wo_a.get(), .groups = config_.o_groups, .x = ws_.core, .rows = n, .out = ws_.grouped});
  ops_.quantized_linear({.weight = weights.wo_b.get(), .x = ws_.grouped, .rows = n, .out = ws_.output});
}

void Transformer::attention(Pass& pass, int layer) {
  const AttentionWeights& weights = weights_.layers[static_cast<size_t>(layer)].attention;
  const LayerTopology& topology = topology_[layer];
  const int64_t n = pass.count, heads = config_.num_attention_heads, dim = config_.head_dim;
  const float* rope = topology.ratio == 0 ? pass.at->rope_plain : pass.at->rope_scaled;
  const RingRows& ring = pass.cache.window[static_cast<size_t>(layer)];
  const std::string key = concat("layers.", layer);
  queries(pass, weights, rope, key);

  if (topology.index_source == layer) index_select(pass, layer);
  AttendArgs args{.rows = pass.rows,
                  .decoder = layer >= topology_.first_decoder_layer,
                  .query_rows = pass.query_rows,
                  .num_queries = static_cast<int32_t>(n),
                  .query = ws_.query,
                  .encoded = ws_.window_rows,
                  .ring = ring,
                  .window = static_cast<int32_t>(config_.sliding_window),
                  .main = {},
                  .sink = weights.sink.get(),
                  .heads = static_cast<int32_t>(heads),
                  .dim = static_cast<int32_t>(dim),
                  .out = ws_.core};
  if (topology.ratio > 0) {
    args.main = pass.cache.owners[static_cast<size_t>(topology_.owner_index(topology.kv_owner))].main;
    args.selected = ws_.selected;
    args.topk = static_cast<int32_t>(config_.index_topk);
  }
  ops_.attend(args);
  pass.trace.put(key + ".attn.core", ws_.core, {n, heads, dim});
  ops_.write_window({.rows = pass.rows, .encoded = ws_.window_rows, .ring = ring});
  attention_output(pass, weights, rope);
}

void Transformer::compress(Pass& pass, int layer) {
  const CompressorWeights& weights = weights_.layers[static_cast<size_t>(layer)].attention.compressor;
  const Rows& rows = pass.rows;
  const int64_t n = rows.count, dim = config_.head_dim, index_dim = config_.index_head_dim;
  const int32_t ratio = topology_[layer].ratio;
  const CacheView::Owner& owner = pass.cache.owners[static_cast<size_t>(topology_.owner_index(layer))];
  const std::string key = concat("layers.", layer);

  if (ratio == 2) {
    ops_.linear({.weight = weights.wkv.get(), .x = pass.at->input, .rows = n, .out_f32 = ws_.compress_kv});
    ops_.linear({.weight = weights.wgate.get(), .x = pass.at->input, .rows = n, .out_f32 = ws_.compress_gate});
    ops_.compress({.rows = rows,
                   .kv = ws_.compress_kv,
                   .gate = ws_.compress_gate,
                   .pending = owner.pending,
                   .pooled = ws_.entry});
  } else {
    ops_.linear({.weight = weights.wkv.get(), .x = pass.at->input, .rows = n, .out = ws_.entry});
  }
  norm(ws_.entry, weights.norm.get(), n, ws_.entry);
  pass.trace.entries(key + ".latent", rows, ratio, ws_.entry, dim);

  // The index key comes from the latent before its rotation.
  const float* rope = ratio == 2 ? ws_.rope_group : pass.at->rope_scaled;
  ops_.linear({.weight = weights.wk.get(), .x = ws_.entry, .rows = n, .out = ws_.index_key});
  norm(ws_.index_key, weights.k_norm.get(), n, ws_.index_key);
  rotate(ws_.index_key, n, 1, index_dim, rope);
  pass.trace.index_codes(key + ".index_key", rows, ratio, ws_.index_key, owner.index);
  ops_.write_index({.rows = rows, .ratio = ratio, .x = ws_.index_key, .plane = owner.index});

  rotate(ws_.entry, n, 1, dim, rope);
  pass.trace.main_codes(key + ".compressed", rows, ratio, ws_.entry, dim);
  ops_.write_main({.rows = rows, .ratio = ratio, .x = ws_.entry, .plane = owner.main});
}

void Transformer::index_select(Pass& pass, int layer) {
  const IndexerWeights& weights = weights_.layers[static_cast<size_t>(layer)].attention.indexer;
  const LayerTopology& topology = topology_[layer];
  const int64_t n = pass.count, heads = config_.index_n_heads, dim = config_.index_head_dim;

  ops_.quantized_linear({.weight = weights.wq_b.get(), .x = ws_.query_latent, .rows = n, .out = ws_.index_query});
  rotate(ws_.index_query, n, heads, dim, pass.at->rope_scaled);
  ops_.linear({.weight = weights.weights_proj.get(), .x = pass.at->input, .rows = n, .out = ws_.index_weights});
  const double scale = std::pow(static_cast<double>(dim), -0.5) * std::pow(static_cast<double>(heads), -0.5);
  ops_.scale(
      {.x = ws_.index_weights, .scale = static_cast<float>(scale), .count = n * heads, .out = ws_.index_weights});

  IndexSelectArgs args{.rows = pass.rows,
                       .query_rows = pass.query_rows,
                       .num_queries = static_cast<int32_t>(n),
                       .ratio = topology.ratio,
                       .query = ws_.index_query,
                       .head_weights = ws_.index_weights,
                       .heads = static_cast<int32_t>(heads),
                       .keys = pass.cache.owners[static_cast<size_t>(topology_.owner_index(topology.kv_owner))].index,
                       .topk = static_cast<int32_t>(config_.index_topk),
                       .selected = ws_.selected,
                       .candidate_blocks = static_cast<int32_t>(config_.candidate_topk_blocks),
                       .candidate_size = static_cast<int32_t>(config_.candidate_block_size),
                       .candidates = ws_.candidates};
  if (topology.writes_candidates) args.role = CandidateRole::kWrite;
  if (topology.reads_candidates) args.role = CandidateRole::kRead;
  if (pass.trace.wants(concat("layers.", layer, ".index_scores"))) {
    FOLIO_CHECK(trace_scores_ > 0, "no room was reserved for a trace");
    args.scores = ws_.index_scores;
    args.scores_stride = trace_scores_;
  }
  ops_.index_select(args);
  pass.trace.selection(concat("layers.", layer), args);
}

}  // namespace folio
