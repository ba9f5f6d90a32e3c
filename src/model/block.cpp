// One block of the backbone: hyper-connections around attention and experts (spec/model.md 4.2), and Engram before it.
#include "base/error.h"
#include "model/transformer.h"

namespace folio {

void Transformer::engram(Pass& pass, int layer) {
  FOLIO_CHECK(pass.at == &ws_.all, "Engram after a layer that drops rows");
  const int64_t rows = pass.count, columns = config_.engram_columns();
  const int index = topology_[layer].engram;
  const EngramWeights& weights = weights_.layers[static_cast<size_t>(layer)].engram;
  const int64_t* table_rows = ws_.engram_rows + index * max_rows_ * columns;
  ops_.engram_gather({.table = weights.table.get(),
                      .table_rows = table_rows,
                      .rows = rows,
                      .columns = columns,
                      .out = ws_.engram_input});
  ops_.quantized_linear({.weight = weights.wkv.get(), .x = ws_.engram_input, .rows = rows, .out = ws_.engram_kv});
  ops_.engram_inject({.streams = pass.at->streams,
                      .kv = ws_.engram_kv,
                      .q_weight = weights.q_weight.get(),
                      .k_weight = weights.k_weight.get(),
                      .image = pass.at->image,
                      .rows = rows,
                      .num_streams = static_cast<int32_t>(config_.hc_mult),
                      .hidden = config_.hidden_size,
                      .norm_eps = static_cast<float>(config_.rms_norm_eps),
                      .gate = ws_.engram_gate});
  pass.trace.put(concat("engram.", layer, ".rows"), table_rows, {rows, columns});
  pass.trace.put(concat("engram.", layer, ".gate"), ws_.engram_gate, {rows, config_.hc_mult});
}

bool Transformer::block(Pass& pass, int layer) {
  const BlockWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  const std::string key = concat("layers.", layer);
  pass.trace.stream_means(concat("tap.", layer), pass.at->streams, pass.count, config_.hc_mult, config_.hidden_size);
  begin_block(pass, weights, key);
  keys(pass, layer);
  if (pass.count == 0) return false;
  attention_mix(pass, weights, key);
  attention(pass, layer);
  end_attention(pass, key);
  feed_forward(pass, weights, layer, key);
  return true;
}

// Attention takes its input through the mix that the site before handed on; its own `pre` is for the experts.
void Transformer::begin_block(Pass& pass, const BlockWeights& weights, const std::string& key) {
  pass.trace.put(key + ".in_streams", pass.at->streams, {pass.count, config_.hc_mult, config_.hidden_size});
  pass.trace.put(key + ".in_mix", pass.at->mix, {pass.count, config_.hc_mult});
  sublayer_input(pass, pass.at->mix, weights.attn_norm.get());
}

void Transformer::attention_mix(Pass& pass, const BlockWeights& weights, const std::string& key) {
  const int64_t rows = pass.count, s = config_.hc_mult;
  hyper_mix(pass, weights.hc_attn, ws_.pre);
  pass.trace.put(key + ".attn.in", pass.at->input, {rows, config_.hidden_size});
  pass.trace.put(key + ".hc_attn.pre", ws_.pre, {rows, s});
  pass.trace.put(key + ".hc_attn.post", ws_.post, {rows, s});
  pass.trace.put(key + ".hc_attn.comb", ws_.comb, {rows, s, s});
}

void Transformer::end_attention(Pass& pass, const std::string& key) {
  pass.trace.put(key + ".attn.out", ws_.output, {pass.count, config_.hidden_size});
  expand(pass);
  pass.trace.put(key + ".mid_streams", pass.at->streams, {pass.count, config_.hc_mult, config_.hidden_size});
}

void Transformer::feed_forward(Pass& pass, const BlockWeights& weights, int layer, const std::string& key) {
  const int64_t rows = pass.count, s = config_.hc_mult, hidden = config_.hidden_size;
  hyper_mix(pass, weights.hc_ffn, pass.at->mix);
  sublayer_input(pass, ws_.pre, weights.ffn_norm.get());
  pass.trace.put(key + ".ffn.in", pass.at->input, {rows, hidden});
  moe(pass, weights.moe, layer, key);
  pass.trace.put(key + ".ffn.out", ws_.output, {rows, hidden});
  expand(pass);
  pass.trace.put(key + ".streams", pass.at->streams, {rows, s, hidden});
  pass.trace.put(key + ".mix", pass.at->mix, {rows, s});
}

void Transformer::sublayer_input(Pass& pass, const float* mix, const Weight* norm_weight) {
  ops_.hyper_collapse({.streams = pass.at->streams,
                       .mix = mix,
                       .rows = pass.count,
                       .num_streams = static_cast<int32_t>(config_.hc_mult),
                       .hidden = config_.hidden_size,
                       .out = pass.at->input});
  norm(pass.at->input, norm_weight, pass.count, pass.at->input);
}

void Transformer::hyper_mix(Pass& pass, const HyperWeights& weights, float* pre) {
  ops_.hyper_mix({.streams = pass.at->streams,
                  .fn = weights.fn.get(),
                  .scale = weights.scale.get(),
                  .base = weights.base.get(),
                  .rows = pass.count,
                  .num_streams = static_cast<int32_t>(config_.hc_mult),
                  .hidden = config_.hidden_size,
                  .iterations = config_.hc_sinkhorn_iters,
                  .hc_eps = static_cast<float>(config_.hc_eps),
                  .norm_eps = static_cast<float>(config_.rms_norm_eps),
                  .pre = pre,
                  .post = ws_.post,
                  .comb = ws_.comb});
}

void Transformer::expand(Pass& pass) {
  ops_.hyper_expand({.streams = pass.at->streams,
                     .y = ws_.output,
                     .post = ws_.post,
                     .comb = ws_.comb,
                     .rows = pass.count,
                     .num_streams = static_cast<int32_t>(config_.hc_mult),
                     .hidden = config_.hidden_size});
}

void Transformer::moe(Pass& pass, const MoeWeights& weights, int layer, const std::string& key) {
  const auto k = static_cast<int32_t>(config_.experts_of(layer).per_token);
  ops_.route({.x = pass.at->input,
              .gate = weights.gate.get(),
              .bias = weights.bias.get(),
              .bias_image = weights.bias_image.get(),
              .image = pass.at->image,
              .rows = pass.count,
              .k = k,
              .scale = static_cast<float>(config_.routed_scaling_factor),
              .ids = ws_.expert_ids,
              .weights = ws_.expert_weights});
  pass.trace.put(key + ".router.ids", ws_.expert_ids, {pass.count, k});
  pass.trace.put(key + ".router.weights", ws_.expert_weights, {pass.count, k});
  ops_.experts({.experts = weights.experts.get(),
                .x = pass.at->input,
                .ids = ws_.expert_ids,
                .weights = ws_.expert_weights,
                .rows = pass.count,
                .k = k,
                .limit = static_cast<float>(config_.swiglu_limit),
                .out = ws_.output});
}

}  // namespace folio
