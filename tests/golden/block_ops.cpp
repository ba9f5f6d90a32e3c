// Comparison of the ops outside attention: the step's first op, embedding, Engram, hyper-connections, experts, head.
#include <algorithm>
#include <array>
#include <cstring>

#include "op_runner.h"

namespace folio::golden {

void OpRunner::step() {
  const auto want = [&](size_t index) {
    return golden_.get<int64_t>(concat("engram.", config().engram_layer_ids[index], ".rows"));
  };
  for (size_t i = 0; i < config().engram_layer_ids.size(); ++i) {
    const auto rows = std::span<const int64_t>(engram_rows_).subspan(i * want(i).size(), want(i).size());
    recorder_.exact("hash rows", config().engram_layer_ids[i], rows, want(i));
  }
  // The same in several steps: n-grams now look back into the slot's history, and commit keeps it.
  std::vector<int64_t> hashed(engram_rows_.size());
  std::vector<float> plain(rope_plain_.size()), scaled(rope_plain_.size()), group(rope_plain_.size());
  const std::vector<int32_t> positions = positions_;
  int64_t first = 0;
  for (const int64_t chunk : {int64_t{1}, int64_t{2}, int64_t{1}, int64_t{19}, int64_t{1}, int64_t{5}, n_}) {
    const int64_t count = std::min(chunk, n_ - first);
    begin(first, count, hashed.data(), plain.data(), scaled.data(), group.data());
    ops_.commit({.inputs = {.num_rows = static_cast<int32_t>(count), .num_requests = 1, .spans = &span_},
                 .cursors = reinterpret_cast<std::byte*>(&cursor_),
                 .cursor_stride = sizeof cursor_,
                 .compressed = compressed_.data() + first});
    first += count;
  }
  recorder_.exact<int64_t>("hash rows, in chunks", -1, hashed, engram_rows_);
  recorder_.exact<int32_t>("positions, in chunks", -1, positions_, positions);
  recorder_.exact<float>("rotation tables, in chunks", -1, plain, rope_plain_);
  recorder_.exact<float>("rotation tables, in chunks", -1, scaled, rope_scaled_);
  recorder_.exact<float>("rotation tables, in chunks", -1, group, rope_group_);
}

void OpRunner::embedding() {
  const int64_t s = streams(), hidden = config().hidden_size;
  std::vector<bf16> out(static_cast<size_t>(n_ * s * hidden));
  std::vector<float> mix(static_cast<size_t>(n_ * s));
  ops_.embed({.table = weights_.embed.get(),
              .row_inputs = inputs_.data(),
              .ids = ids_.data(),
              .rows = static_cast<int32_t>(n_),
              .streams = streams(),
              .out = out.data(),
              .mix = mix.data()});
  const auto want = golden_.get<uint16_t>("embedded");
  for (int64_t r = 0; r < n_; ++r) {
    for (int64_t i = 0; i < s; ++i) {
      const auto* stream = reinterpret_cast<const uint16_t*>(out.data() + (r * s + i) * hidden);
      recorder_.exact("embed", -1, std::span(stream, static_cast<size_t>(hidden)),
                      want.subspan(static_cast<size_t>(r * hidden), static_cast<size_t>(hidden)));
    }
  }
  recorder_.exact<float>("embed", -1, mix, golden_.get<float>("layers.0.in_mix"));
}

void OpRunner::engram(int layer) {
  const EngramWeights& engram = weights(layer).engram;
  const std::string name = concat("engram.", layer, ".");
  const int64_t s = streams(), hidden = config().hidden_size, columns = config().engram_columns();
  const auto table_rows = golden_.get<int64_t>(name + "rows");
  std::vector<bf16> table(static_cast<size_t>(n_ * columns * config().engram_head_dim));
  ops_.engram_gather({.table = engram.table.get(),
                      .table_rows = table_rows.data(),
                      .rows = n_,
                      .columns = columns,
                      .out = table.data()});
  recorder_.exact("engram_gather", layer, std::span(reinterpret_cast<const uint16_t*>(table.data()), table.size()),
                  golden_.get<uint16_t>(name + "table"));
  const auto kv = linear(engram.wkv.get(), bf16s(name + "table"), true);
  recorder_.bf16_rows("engram.wkv", layer, kv, bf16s(name + "wkv"), hidden);

  std::vector<bf16> injected;
  if (layer == 0) {
    for (int64_t r = 0; r < n_; ++r) {
      const auto row = bf16s("embedded").subspan(static_cast<size_t>(r * hidden), static_cast<size_t>(hidden));
      for (int64_t i = 0; i < s; ++i) injected.insert(injected.end(), row.begin(), row.end());
    }
  } else {
    const auto before = bf16s(key(layer - 1, "streams"));
    injected.assign(before.begin(), before.end());
  }
  std::vector<float> gate(static_cast<size_t>(n_ * s));
  ops_.engram_inject({.streams = injected.data(),
                      .kv = bf16s(name + "wkv").data(),
                      .q_weight = engram.q_weight.get(),
                      .k_weight = engram.k_weight.get(),
                      .image = step_image_.data(),
                      .rows = n_,
                      .num_streams = streams(),
                      .hidden = hidden,
                      .norm_eps = norm_eps(),
                      .gate = gate.data()});
  recorder_.f32_rows("engram gate (fp32)", layer, gate, golden_.get<float>(name + "gate"), 1);
  recorder_.bf16_rows("engram_inject", layer, injected, bf16s(key(layer, "in_streams")), hidden);
}

void OpRunner::hyper_site(int layer, const std::string& site, const HyperWeights& hyper, const std::string& streams_key,
                          const std::string& pre_key) {
  const int64_t s = streams();
  const auto count = static_cast<size_t>(n_ * s);
  std::vector<float> pre(count), post(count), comb(count * static_cast<size_t>(s));
  ops_.hyper_mix({.streams = bf16s(key(layer, streams_key)).data(),
                  .fn = hyper.fn.get(),
                  .scale = hyper.scale.get(),
                  .base = hyper.base.get(),
                  .rows = n_,
                  .num_streams = streams(),
                  .hidden = config().hidden_size,
                  .iterations = config().hc_sinkhorn_iters,
                  .hc_eps = static_cast<float>(config().hc_eps),
                  .norm_eps = norm_eps(),
                  .pre = pre.data(),
                  .post = post.data(),
                  .comb = comb.data()});
  recorder_.f32_rows("hyper_mix pre (fp32)", layer, pre, golden_.get<float>(key(layer, pre_key)), 1);
  recorder_.f32_rows("hyper_mix post (fp32)", layer, post, golden_.get<float>(key(layer, site + ".post")), 1);
  recorder_.f32_rows("hyper_mix comb (fp32)", layer, comb, golden_.get<float>(key(layer, site + ".comb")), s * s);
}

void OpRunner::collapse(int layer, const std::string& site, const Weight* norm_weight, const std::string& streams_key,
                        const std::string& mix_key) {
  const int64_t hidden = config().hidden_size;
  std::vector<bf16> collapsed(static_cast<size_t>(n_ * hidden));
  ops_.hyper_collapse({.streams = bf16s(key(layer, streams_key)).data(),
                       .mix = golden_.get<float>(key(layer, mix_key)).data(),
                       .rows = n_,
                       .num_streams = streams(),
                       .hidden = hidden,
                       .out = collapsed.data()});
  recorder_.bf16_rows("hyper_collapse", layer, collapsed, bf16s(key(layer, site + ".collapsed")), hidden);
  const auto normed = norm(norm_weight, bf16s(key(layer, site + ".collapsed")));
  recorder_.bf16_rows(site + "_norm", layer, normed, bf16s(key(layer, site + ".in")), hidden);
}

void OpRunner::expand(int layer, const std::string& site, const std::string& before, const std::string& after) {
  const auto streams_before = bf16s(key(layer, before));
  std::vector<bf16> expanded(streams_before.begin(), streams_before.end());
  ops_.hyper_expand({.streams = expanded.data(),
                     .y = bf16s(key(layer, site + ".out")).data(),
                     .post = golden_.get<float>(key(layer, "hc_" + site + ".post")).data(),
                     .comb = golden_.get<float>(key(layer, "hc_" + site + ".comb")).data(),
                     .rows = n_,
                     .num_streams = streams(),
                     .hidden = config().hidden_size});
  recorder_.bf16_rows("hyper_expand", layer, expanded, bf16s(key(layer, after)), config().hidden_size);
}

void OpRunner::hyper(int layer) {
  const BlockWeights& block = weights(layer);
  hyper_site(layer, "hc_attn", block.hc_attn, "in_streams", "hc_attn.pre");
  hyper_site(layer, "hc_ffn", block.hc_ffn, "mid_streams", "mix");
  collapse(layer, "attn", block.attn_norm.get(), "in_streams", "in_mix");
  collapse(layer, "ffn", block.ffn_norm.get(), "mid_streams", "hc_attn.pre");
  expand(layer, "attn", "in_streams", "mid_streams");
  expand(layer, "ffn", "mid_streams", "streams");
}

void OpRunner::experts(int layer) {
  const MoeWeights& moe = weights(layer).moe;
  const auto k = static_cast<int32_t>(config().experts_of(layer).per_token);
  const int64_t hidden = config().hidden_size;
  const auto x = bf16s(key(layer, "ffn.in")), want = bf16s(key(layer, "ffn.experts"));
  const auto ids = golden_.get<int32_t>(key(layer, "router.ids"));
  const auto route_weights = golden_.get<float>(key(layer, "router.weights"));
  std::vector<int32_t> own_ids(ids.size());
  std::vector<float> own_weights(ids.size());
  ops_.route({.x = x.data(),
              .gate = moe.gate.get(),
              .bias = moe.bias.get(),
              .bias_image = moe.bias_image.get(),
              .image = step_image_.data(),
              .rows = n_,
              .k = k,
              .scale = static_cast<float>(config().routed_scaling_factor),
              .ids = own_ids.data(),
              .weights = own_weights.data()});
  recorder_.exact<int32_t>("route ids", layer, own_ids, ids);
  recorder_.f32_rows("route weights (fp32)", layer, own_weights, route_weights, 1);

  ExpertsArgs args{.experts = moe.experts.get(),
                   .x = x.data(),
                   .ids = ids.data(),
                   .weights = route_weights.data(),
                   .rows = n_,
                   .k = k,
                   .limit = static_cast<float>(config().swiglu_limit)};
  std::vector<bf16> out(static_cast<size_t>(n_ * hidden));
  args.out = out.data();
  ops_.experts(args);
  recorder_.bf16_rows("experts (sum)", layer, out, bf16s(key(layer, "ffn.out")), hidden);

  // The shared expert alone: next to one whose weight is 0, which adds 0.
  const std::vector<float> nothing(static_cast<size_t>(n_), 0.0f);
  const std::vector<int32_t> first(static_cast<size_t>(n_), 0);
  args.k = 1;
  args.ids = first.data();
  args.weights = nothing.data();
  ops_.experts(args);
  // The routed ones alone: one a row, next to a shared expert of zeros.
  const std::string name = concat("layers.", layer, ".ffn.");
  const auto views = [&](const std::string& expert) {
    const auto part = [&](const char* w) {
      return WeightViews{.weight = checkpoint_.tensor(concat(name, expert, w, ".weight")),
                         .scale = checkpoint_.tensor(concat(name, expert, w, ".scale"))};
    };
    return ExpertViews{.w1 = part(".w1"), .w3 = part(".w3"), .w2 = part(".w2")};
  };
  std::vector<ExpertViews> routed;
  for (int64_t e = 0; e < config().experts_of(layer).experts; ++e) routed.push_back(views(concat("experts.", e)));
  ExpertViews zero = views("shared_experts");
  const std::vector<std::byte> zeros(static_cast<size_t>(zero.w1.weight.bytes()), std::byte{0});
  for (WeightViews* part : {&zero.w1, &zero.w3, &zero.w2}) part->weight.data = zeros.data();
  const WeightHandle alone = ops_.prepare_experts(routed, zero);
  std::vector<bf16> shared_want, routed_want, repeated;
  const auto width = static_cast<size_t>(hidden);
  for (size_t r = 0; r < static_cast<size_t>(n_); ++r) {
    for (size_t i = 0; i <= static_cast<size_t>(k); ++i) {
      const auto y = want.subspan((r * (static_cast<size_t>(k) + 1) + i) * width, width);
      const bool is_shared = i == static_cast<size_t>(k);
      std::vector<bf16>& list = is_shared ? shared_want : routed_want;
      list.insert(list.end(), y.begin(), y.end());
      const auto row = x.subspan(r * width, width);
      if (!is_shared) repeated.insert(repeated.end(), row.begin(), row.end());
    }
  }
  recorder_.bf16_rows("expert (shared)", layer, out, shared_want, hidden);
  std::vector<bf16> each(routed_want.size());
  ops_.experts({.experts = alone.get(),
                .x = repeated.data(),
                .ids = ids.data(),
                .weights = route_weights.data(),
                .rows = n_ * k,
                .k = 1,
                .limit = args.limit,
                .out = each.data()});
  recorder_.bf16_rows("expert (routed)", layer, each, routed_want, hidden);
}

void OpRunner::head() {
  const int64_t hidden = config().hidden_size;
  const int last = config().num_hidden_layers - 1;
  std::vector<bf16> collapsed(static_cast<size_t>(n_ * hidden));
  ops_.hyper_collapse({.streams = bf16s(key(last, "streams")).data(),
                       .mix = golden_.get<float>(key(last, "mix")).data(),
                       .rows = n_,
                       .num_streams = streams(),
                       .hidden = hidden,
                       .out = collapsed.data()});
  recorder_.bf16_rows("hyper_collapse", last, collapsed, bf16s("hidden"), hidden);
  recorder_.bf16_rows("final norm", -1, norm(weights_.norm.get(), bf16s("hidden")), bf16s("head.in"), hidden);
  recorder_.f32_rows("logits (fp32)", -1, linear_f32(weights_.head.get(), bf16s("head.in")),
                     golden_.get<float>("logits"), config().vocab_size);
}

}  // namespace folio::golden
