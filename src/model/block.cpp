// One block of the backbone: hyper-connections around attention and experts (spec/model.md 4.2), and Engram before it.
#include "model/transformer.h"

namespace folio {

void Transformer::engram(Pass& pass, int layer) {
  const int64_t rows = pass.rows.count, columns = config_.engram_columns();
  const int index = topology_[layer].engram;
  const EngramWeights& weights = weights_.layers[static_cast<size_t>(layer)].engram;
  const int64_t* table_rows = ws_.engram_rows + index * max_rows_ * columns;
  ops_.engram_gather({.table = weights.table.get(),
                      .table_rows = table_rows,
                      .rows = rows,
                      .columns = columns,
                      .out = ws_.engram_input});
  ops_.quantized_linear({.weight = weights.wkv.get(), .x = ws_.engram_input, .rows = rows, .out = ws_.engram_kv});
  ops_.engram_inject({.streams = ws_.streams,
                      .kv = ws_.engram_kv,
                      .q_weight = weights.q_weight.get(),
                      .k_weight = weights.k_weight.get(),
                      .image = pass.rows.image,
                      .rows = rows,
                      .num_streams = static_cast<int32_t>(config_.hc_mult),
                      .hidden = config_.hidden_size,
                      .norm_eps = static_cast<float>(config_.rms_norm_eps),
                      .gate = ws_.engram_gate});
  pass.trace.put(concat("engram.", layer, ".rows"), table_rows, {rows, columns});
  pass.trace.put(concat("engram.", layer, ".gate"), ws_.engram_gate, {rows, config_.hc_mult});
}

void Transformer::block(Pass& pass, int layer) {
  const BlockWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  const int64_t rows = pass.rows.count, s = config_.hc_mult, hidden = config_.hidden_size;
  const std::string key = concat("layers.", layer);
  Tracer& trace = pass.trace;
  for (const int tap : config_.dspark_target_layer_ids) {
    if (tap == layer) trace.stream_means(concat("tap.", layer), ws_.streams, rows, s, hidden);
  }
  trace.put(key + ".in_streams", ws_.streams, {rows, s, hidden});
  trace.put(key + ".in_mix", ws_.mix, {rows, s});

  // Attention takes its input through the mix that the site before handed on; its own `pre` is for the experts.
  sublayer_input(ws_.mix, weights.attn_norm.get(), rows, ws_.input);
  hyper_mix(weights.hc_attn, rows, ws_.pre);
  trace.put(key + ".attn.in", ws_.input, {rows, hidden});
  trace.put(key + ".hc_attn.pre", ws_.pre, {rows, s});
  trace.put(key + ".hc_attn.post", ws_.post, {rows, s});
  trace.put(key + ".hc_attn.comb", ws_.comb, {rows, s, s});
  attention(pass, layer);
  trace.put(key + ".attn.out", ws_.output, {rows, hidden});
  expand(rows);
  trace.put(key + ".mid_streams", ws_.streams, {rows, s, hidden});

  hyper_mix(weights.hc_ffn, rows, ws_.mix);
  sublayer_input(ws_.pre, weights.ffn_norm.get(), rows, ws_.input);
  trace.put(key + ".ffn.in", ws_.input, {rows, hidden});
  moe(pass, layer);
  trace.put(key + ".ffn.out", ws_.output, {rows, hidden});
  expand(rows);
  trace.put(key + ".streams", ws_.streams, {rows, s, hidden});
  trace.put(key + ".mix", ws_.mix, {rows, s});
}

void Transformer::sublayer_input(const float* mix, const Weight* norm_weight, int64_t rows, bf16* out) {
  ops_.hyper_collapse({.streams = ws_.streams,
                       .mix = mix,
                       .rows = rows,
                       .num_streams = static_cast<int32_t>(config_.hc_mult),
                       .hidden = config_.hidden_size,
                       .out = out});
  norm(out, norm_weight, rows, out);
}

void Transformer::hyper_mix(const HyperWeights& weights, int64_t rows, float* pre) {
  ops_.hyper_mix({.streams = ws_.streams,
                  .fn = weights.fn.get(),
                  .scale = weights.scale.get(),
                  .base = weights.base.get(),
                  .rows = rows,
                  .num_streams = static_cast<int32_t>(config_.hc_mult),
                  .hidden = config_.hidden_size,
                  .iterations = config_.hc_sinkhorn_iters,
                  .hc_eps = static_cast<float>(config_.hc_eps),
                  .norm_eps = static_cast<float>(config_.rms_norm_eps),
                  .pre = pre,
                  .post = ws_.post,
                  .comb = ws_.comb});
}

void Transformer::expand(int64_t rows) {
  ops_.hyper_expand({.streams = ws_.streams,
                     .y = ws_.output,
                     .post = ws_.post,
                     .comb = ws_.comb,
                     .rows = rows,
                     .num_streams = static_cast<int32_t>(config_.hc_mult),
                     .hidden = config_.hidden_size});
}

void Transformer::moe(Pass& pass, int layer) {
  const MoeWeights& weights = weights_.layers[static_cast<size_t>(layer)].moe;
  const auto k = static_cast<int32_t>(config_.experts_of(layer).per_token);
  const int64_t rows = pass.rows.count;
  ops_.route({.x = ws_.input,
              .gate = weights.gate.get(),
              .bias = weights.bias.get(),
              .bias_image = weights.bias_image.get(),
              .image = pass.rows.image,
              .rows = rows,
              .k = k,
              .scale = static_cast<float>(config_.routed_scaling_factor),
              .ids = ws_.expert_ids,
              .weights = ws_.expert_weights});
  pass.trace.put(concat("layers.", layer, ".router.ids"), ws_.expert_ids, {rows, k});
  pass.trace.put(concat("layers.", layer, ".router.weights"), ws_.expert_weights, {rows, k});
  ops_.experts({.experts = weights.experts.get(),
                .x = ws_.input,
                .ids = ws_.expert_ids,
                .weights = ws_.expert_weights,
                .rows = rows,
                .k = k,
                .limit = static_cast<float>(config_.swiglu_limit),
                .out = ws_.output});
}

}  // namespace folio
