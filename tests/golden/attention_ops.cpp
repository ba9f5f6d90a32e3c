// Comparison of the ops of attention: queries, window rows, attend, output projection.
#include <algorithm>
#include <array>

#include "op_runner.h"

namespace folio::golden {

void OpRunner::queries(int layer) {
  const AttentionWeights& attention = weights(layer).attention;
  const std::string attn = key(layer, "attn.");
  const auto wq_a = linear(attention.wq_a.get(), bf16s(attn + "in"), true);
  recorder_.bf16_rows("wq_a", layer, wq_a, bf16s(attn + "wq_a"), config().q_lora_rank);
  const auto qr = norm(attention.q_norm.get(), bf16s(attn + "wq_a"));
  recorder_.bf16_rows("q_norm", layer, qr, bf16s(attn + "qr"), config().q_lora_rank);
  const auto wq_b = linear(attention.wq_b.get(), bf16s(attn + "qr"), true);
  recorder_.bf16_rows("wq_b", layer, wq_b, bf16s(attn + "wq_b"), config().head_dim);
  const auto q = rotated(bf16s(attn + "wq_b"), n_, config().num_attention_heads, rope(layer));
  recorder_.bf16_rows("rotate (query)", layer, q, bf16s(attn + "q"), config().head_dim);
}

void OpRunner::window(int layer) {
  const AttentionWeights& attention = weights(layer).attention;
  const std::string attn = key(layer, "attn."), want = key(layer, "window");
  const int64_t dim = config().head_dim;
  const auto wkv = linear(attention.wkv.get(), bf16s(attn + "in"), true);
  recorder_.bf16_rows("wkv", layer, wkv, bf16s(attn + "wkv"), dim);
  const auto normed = norm(attention.kv_norm.get(), bf16s(attn + "wkv"));
  recorder_.bf16_rows("kv_norm", layer, normed, bf16s(attn + "kv_norm"), dim);
  const auto kv = rotated(bf16s(attn + "kv_norm"), n_, 1, rope(layer));
  recorder_.bf16_rows("rotate (window)", layer, kv, bf16s(attn + "kv"), dim);

  const RingRows& ring = packed_.view().window[static_cast<size_t>(layer)];
  const auto encode = [&](std::span<const bf16> x, std::vector<uint8_t>& codes, std::vector<uint8_t>& scales) {
    std::vector<std::byte> encoded(static_cast<size_t>(n_ * ring.row_stride));
    ops_.encode_window({.x = x.data(), .rows = n_, .ring = ring, .out = encoded.data()});
    for (int64_t r = 0; r < n_; ++r) {
      const auto* row = reinterpret_cast<const uint8_t*>(encoded.data() + r * ring.row_stride);
      codes.insert(codes.end(), row, row + dim);
      scales.insert(scales.end(), row + dim, row + ring.row_stride);
    }
  };
  std::vector<uint8_t> codes, scales, chained_codes, chained_scales;
  encode(bf16s(attn + "kv"), codes, scales);
  stored("window", layer, RowFormat::kFp8Window, codes, scales, want);
  // From the attention input on, as the model chains it.
  encode(rotated(norm(attention.kv_norm.get(), wkv), n_, 1, rope(layer)), chained_codes, chained_scales);
  stored_near("window from attn.in,", layer, RowFormat::kFp8Window, chained_codes, chained_scales, want);
}

void OpRunner::attend(int layer) {
  const LayerTopology& topology = topology_[layer];
  const std::string window = key(layer, "window"), owner = key(topology.kv_owner, "compressed");
  const int64_t width = config().num_attention_heads * config().head_dim;
  const auto run = [&](const CaseCache& cache, std::span<const int64_t> chunks) {
    const RingRows& ring = cache.view().window[static_cast<size_t>(layer)];
    const auto encoded =
        window_rows(ring, golden_.get<uint8_t>(window + ".codes"), golden_.get<uint8_t>(window + ".scales"));
    std::vector<bf16> out(static_cast<size_t>(n_ * width));
    int64_t first = 0;
    for (const int64_t chunk : chunks) {
      const int64_t count = std::min(chunk, n_ - first);
      if (count == 0) break;
      AttendArgs args{.rows = rows(first, count),
                      .query = bf16s(key(layer, "attn.q")).data() + first * width,
                      .encoded = encoded.data() + first * ring.row_stride,
                      .ring = ring,
                      .window = static_cast<int32_t>(config().sliding_window),
                      .main = {},
                      .sink = weights(layer).attention.sink.get(),
                      .heads = static_cast<int32_t>(config().num_attention_heads),
                      .dim = static_cast<int32_t>(config().head_dim),
                      .out = out.data() + first * width};
      if (topology.ratio > 0) {
        args.main = cache.view().owners[static_cast<size_t>(topology_.owner_index(topology.kv_owner))].main;
        cache.install(args.main, RowFormat::kFp4Main, golden_.get<uint8_t>(owner + ".codes"),
                      golden_.get<uint8_t>(owner + ".scales"));
        args.topk = static_cast<int32_t>(config().index_topk);
        args.selected =
            golden_.get<int32_t>(key(topology.index_source, "selected")).data() + first * config().index_topk;
      }
      ops_.attend(args);
      ops_.write_window({.rows = rows(first, count), .encoded = args.encoded, .ring = ring});
      first += count;
    }
    return out;
  };
  const auto bits = [](const std::vector<bf16>& x) {
    return std::span(reinterpret_cast<const uint16_t*>(x.data()), x.size());
  };
  const std::array<int64_t, 1> whole = {n_};
  const std::array<int64_t, 5> pieces = {n_ / 2 + 1, 1, 1, 3, n_};
  const auto out = run(packed_, whole);
  recorder_.bf16_rows("attend", layer, out, bf16s(key(layer, "attn.core")), config().head_dim,
                      [&](int64_t index) { return probability_flips(layer, index); });
  // The window now comes from the ring too, and then from bf16 planes: not one bit may change.
  recorder_.exact("attend, in chunks", layer, bits(run(packed_, pieces)), bits(out));
  recorder_.exact("attend, bf16 planes", layer, bits(run(wide_, whole)), bits(out));
}

void OpRunner::output(int layer) {
  const AttentionWeights& attention = weights(layer).attention;
  const std::string attn = key(layer, "attn.");
  const auto o = rotated(bf16s(attn + "core"), n_, config().num_attention_heads, rope(layer), true);
  recorder_.bf16_rows("rotate (inverse)", layer, o, bf16s(attn + "o"), config().head_dim);
  std::vector<bf16> grouped(static_cast<size_t>(n_ * config().o_groups * config().o_lora_rank));
  ops_.grouped_linear({.weight = attention.wo_a.get(),
                       .groups = config().o_groups,
                       .x = bf16s(attn + "o").data(),
                       .rows = n_,
                       .out = grouped.data()});
  recorder_.bf16_rows("wo_a", layer, grouped, bf16s(attn + "wo_a"), config().o_lora_rank);
  const auto wo_b = linear(attention.wo_b.get(), bf16s(attn + "wo_a"), true);
  recorder_.bf16_rows("wo_b", layer, wo_b, bf16s(attn + "out"), config().hidden_size);
}

}  // namespace folio::golden
