// Comparison of the ops around compressed entries: compressor, stored rows, index scores and selections.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "op_runner.h"

namespace folio::golden {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// A second statement of spec 6.7: sorts (score descending, position ascending) and takes the first k.
std::vector<int32_t> largest(const std::vector<float>& scores, int64_t k) {
  std::vector<std::pair<float, int32_t>> order;
  for (size_t j = 0; j < scores.size(); ++j) {
    if (scores[j] != kNever) order.emplace_back(-scores[j], static_cast<int32_t>(j));
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), static_cast<size_t>(k)));
  std::vector<int32_t> taken;
  for (const auto& [score, position] : order) taken.push_back(position);
  std::sort(taken.begin(), taken.end());
  return taken;
}

std::vector<int32_t> padded(std::vector<int32_t> values, int64_t width) {
  values.resize(static_cast<size_t>(width), -1);
  return values;
}

std::vector<bf16> narrowed(std::span<const float> values) {
  std::vector<bf16> out;
  for (const float value : values) out.push_back(to_bf16(value));
  return out;
}

// Spec 6.8 on a row's visible scores.
std::vector<int32_t> blocks_of(const std::vector<float>& scores, int64_t size, int64_t most) {
  std::vector<float> best((scores.size() + static_cast<size_t>(size) - 1) / static_cast<size_t>(size), kNever);
  for (size_t j = 0; j < scores.size(); ++j) {
    float& block = best[j / static_cast<size_t>(size)];
    block = std::max(block, scores[j]);
  }
  if (!best.empty()) best.back() = std::numeric_limits<float>::infinity();
  return largest(best, most);
}

}  // namespace

void OpRunner::compressor(int layer) {
  const CompressorWeights& compressor = weights(layer).attention.compressor;
  const std::string attn = key(layer, "attn."), pooled_key = attn + "compressor.pooled";
  const int32_t ratio = topology_[layer].ratio;
  const int64_t dim = config().head_dim, index_dim = config().index_head_dim;
  const auto x = bf16s(attn + "in");
  const auto wkv = golden_.get<float>(attn + "compressor.wkv");
  std::vector<bf16> unnormed;  // of completed entries, from the oracle
  if (ratio == 2) {
    const auto wgate = golden_.get<float>(attn + "compressor.wgate");
    recorder_.f32_rows("compressor.wkv (fp32)", layer, linear_f32(compressor.wkv.get(), x), wkv, dim);
    recorder_.f32_rows("compressor.wgate (fp32)", layer, linear_f32(compressor.wgate.get(), x), wgate, dim);
    const PendingRows& pending = packed_.view().owners[static_cast<size_t>(topology_.owner_index(layer))].pending;
    const auto pool = [&](std::span<const int64_t> chunks) {
      std::vector<bf16> out(static_cast<size_t>(n_ * dim));
      int64_t first = 0;
      for (const int64_t chunk : chunks) {
        const int64_t count = std::min(chunk, n_ - first);
        ops_.compress({.rows = rows(first, count),
                       .kv = wkv.data() + first * dim,
                       .gate = wgate.data() + first * dim,
                       .pending = pending,
                       .pooled = out.data() + first * dim});
        first += count;
      }
      return gathered(out, ratio);
    };
    const std::array<int64_t, 1> whole = {n_};
    const std::array<int64_t, 5> pieces = {7, 1, 1, 4, n_};
    const auto pooled = pool(whole), pooled_in_pieces = pool(pieces);
    recorder_.bf16_rows("compress", layer, pooled, bf16s(pooled_key), dim);
    const auto bits = [](const std::vector<bf16>& v) {
      return std::span(reinterpret_cast<const uint16_t*>(v.data()), v.size());
    };
    recorder_.exact("compress, in chunks", layer, bits(pooled_in_pieces), bits(pooled));
    unnormed.assign(bf16s(pooled_key).begin(), bf16s(pooled_key).end());
  } else {
    for (const float value : wkv) unnormed.push_back(to_bf16(value));
    recorder_.bf16_rows("compressor.wkv (bf16)", layer, linear(compressor.wkv.get(), x, false), unnormed, dim);
  }
  recorder_.bf16_rows("compressor.norm", layer, norm(compressor.norm.get(), unnormed), bf16s(key(layer, "latent")),
                      dim);
  const auto wk = linear(compressor.wk.get(), bf16s(key(layer, "latent")), false);
  recorder_.bf16_rows("indexer.wk", layer, wk, bf16s(attn + "indexer.wk"), index_dim);
  const auto k_norm = norm(compressor.k_norm.get(), bf16s(attn + "indexer.wk"));
  recorder_.bf16_rows("indexer.k_norm", layer, k_norm, bf16s(attn + "indexer.k_norm"), index_dim);
  write_entries(layer);
  chained_entries(layer);
}

// Rotation and quantisation of the oracle's latents and normed index keys.
void OpRunner::write_entries(int layer) {
  const std::string attn = key(layer, "attn.");
  const int32_t ratio = topology_[layer].ratio;
  const CacheView::Owner& owner = packed_.view().owners[static_cast<size_t>(topology_.owner_index(layer))];
  const float* rope = ratio == 2 ? rope_group_.data() : rope_scaled_.data();
  const auto entries = rotated(spread(bf16s(key(layer, "latent")), ratio), n_, 1, rope);
  recorder_.bf16_rows("rotate (entry)", layer, gathered(entries, ratio), bf16s(attn + "compressor.rotated"),
                      config().head_dim);
  const auto keys = rotated(spread(bf16s(attn + "indexer.k_norm"), ratio), n_, 1, rope);
  recorder_.bf16_rows("rotate (index key)", layer, gathered(keys, ratio), bf16s(attn + "indexer.k"),
                      config().index_head_dim);

  const auto main_in = spread(bf16s(attn + "compressor.rotated"), ratio);
  const auto index_in = spread(bf16s(attn + "indexer.k"), ratio);
  ops_.write_main({.rows = all_rows(), .ratio = ratio, .x = main_in.data(), .plane = owner.main});
  ops_.write_index({.rows = all_rows(), .ratio = ratio, .x = index_in.data(), .plane = owner.index});
  std::vector<uint8_t> main_codes, main_scales, index_codes, index_scales;
  packed_.read(owner.main, n_ / ratio, main_codes, main_scales);
  packed_.read(owner.index, n_ / ratio, index_codes, index_scales);
  stored("compressed", layer, owner.main.format, main_codes, main_scales, key(layer, "compressed"));
  stored("index key", layer, owner.index.format, index_codes, index_scales, key(layer, "index_key"));
}

// From the attention input to the stored bytes, as the model chains the ops.
void OpRunner::chained_entries(int layer) {
  const CompressorWeights& compressor = weights(layer).attention.compressor;
  const auto x = bf16s(key(layer, "attn.in"));
  const int32_t ratio = topology_[layer].ratio;
  const CacheView::Owner& owner = packed_.view().owners[static_cast<size_t>(topology_.owner_index(layer))];
  const float* rope = ratio == 2 ? rope_group_.data() : rope_scaled_.data();
  std::vector<bf16> pooled(static_cast<size_t>(n_ * config().head_dim));
  if (ratio == 2) {
    const auto kv = linear_f32(compressor.wkv.get(), x), gate = linear_f32(compressor.wgate.get(), x);
    ops_.compress(
        {.rows = all_rows(), .kv = kv.data(), .gate = gate.data(), .pending = owner.pending, .pooled = pooled.data()});
  } else {
    pooled = linear(compressor.wkv.get(), x, false);
  }
  const auto latent = norm(compressor.norm.get(), pooled);
  const auto keys = rotated(norm(compressor.k_norm.get(), linear(compressor.wk.get(), latent, false)), n_, 1, rope);
  const auto entries = rotated(latent, n_, 1, rope);
  ops_.write_index({.rows = all_rows(), .ratio = ratio, .x = keys.data(), .plane = owner.index});
  ops_.write_main({.rows = all_rows(), .ratio = ratio, .x = entries.data(), .plane = owner.main});
  std::vector<uint8_t> main_codes, main_scales, index_codes, index_scales;
  packed_.read(owner.main, n_ / ratio, main_codes, main_scales);
  packed_.read(owner.index, n_ / ratio, index_codes, index_scales);
  stored_near("compressed from attn.in,", layer, owner.main.format, main_codes, main_scales, key(layer, "compressed"));
  stored_near("index key from attn.in,", layer, owner.index.format, index_codes, index_scales, key(layer, "index_key"));
}

void OpRunner::indexer(int layer) {
  const IndexerWeights& indexer = weights(layer).attention.indexer;
  const std::string attn = key(layer, "attn.");
  const int64_t heads = config().index_n_heads, dim = config().index_head_dim;
  const auto wq_b = linear(indexer.wq_b.get(), bf16s(attn + "qr"), true);
  recorder_.bf16_rows("indexer.wq_b", layer, wq_b, bf16s(attn + "indexer.wq_b"), dim);
  const auto q = rotated(bf16s(attn + "indexer.wq_b"), n_, heads, rope_scaled_.data());
  recorder_.bf16_rows("rotate (index query)", layer, q, bf16s(attn + "indexer.q"), dim);
  const auto projected = linear(indexer.weights_proj.get(), bf16s(attn + "in"), false);
  recorder_.bf16_rows("indexer.weights_proj", layer, projected, bf16s(attn + "indexer.weights_proj"), heads);
  std::vector<bf16> scaled(projected.size());
  const double scale = std::pow(static_cast<double>(dim), -0.5) * std::pow(static_cast<double>(heads), -0.5);
  ops_.scale({.x = bf16s(attn + "indexer.weights_proj").data(),
              .scale = static_cast<float>(scale),
              .count = std::ssize(scaled),
              .out = scaled.data()});
  recorder_.bf16_rows("scale", layer, scaled, bf16s(key(layer, "index_weights")), heads);

  const LayerTopology& topology = topology_[layer];
  const std::string owner = key(topology.kv_owner, "index_key");
  const CacheView::Owner& cache = packed_.view().owners[static_cast<size_t>(topology_.owner_index(topology.kv_owner))];
  packed_.install(cache.index, cache.index.format, golden_.get<uint8_t>(owner + ".codes"),
                  golden_.get<uint8_t>(owner + ".scales"));
  IndexSelectArgs args{.rows = all_rows(),
                       .ratio = topology.ratio,
                       .query = bf16s(attn + "indexer.q").data(),
                       .head_weights = bf16s(key(layer, "index_weights")).data(),
                       .heads = static_cast<int32_t>(heads),
                       .keys = cache.index,
                       .topk = static_cast<int32_t>(config().index_topk),
                       .candidate_blocks = static_cast<int32_t>(config().candidate_topk_blocks),
                       .candidate_size = static_cast<int32_t>(config().candidate_block_size)};
  std::span<const int32_t> pool;
  if (topology.writes_candidates) args.role = CandidateRole::kWrite;
  if (topology.reads_candidates) {
    args.role = CandidateRole::kRead;
    pool = golden_.get<int32_t>(key(topology_.candidate_source, "candidates"));
  }
  check_selection(layer, args, pool);
}

// Scores against the oracle's; candidates and selections against a second statement of their rules on the backend's
// own scores, and against the oracle's where all scores of the row are equal.
void OpRunner::check_selection(int layer, const IndexSelectArgs& given, std::span<const int32_t> pool) {
  const auto n = static_cast<size_t>(n_), topk = static_cast<size_t>(given.topk);
  const auto width = static_cast<size_t>(given.candidate_blocks);
  const auto run = [&](bool scored, std::vector<float>& scores, std::vector<int32_t>& selected,
                       std::vector<int32_t>& candidates) {
    IndexSelectArgs args = given;
    scores.resize(n * n);
    selected.assign(n * topk, -7);
    candidates.assign(pool.begin(), pool.end());
    candidates.resize(n * width, -7);
    args.selected = selected.data();
    args.candidates = candidates.data();
    if (scored) {
      args.scores = scores.data();
      args.scores_stride = n_;
    }
    ops_.index_select(args);
  };
  std::vector<float> scores, unused;
  std::vector<int32_t> selected, candidates, selected_alone, candidates_alone;
  run(true, scores, selected, candidates);
  run(false, unused, selected_alone, candidates_alone);
  recorder_.exact<int32_t>("selection without a trace", layer, selected_alone, selected);
  recorder_.exact<int32_t>("candidates without a trace", layer, candidates_alone, candidates);

  const bool fp8 = given.keys.format == RowFormat::kFp8Index;
  std::vector<float> want_scores;
  if (fp8) {
    const auto wide = golden_.get<float>(key(layer, "index_scores"));
    want_scores.assign(wide.begin(), wide.end());
  } else {
    for (const bf16 score : bf16s(key(layer, "index_scores"))) want_scores.push_back(to_float(score));
  }
  const auto want_selected = golden_.get<int32_t>(key(layer, "selected"));
  size_t offset = 0;
  for (size_t r = 0; r < n; ++r) {
    const auto visible = (r + 1) / static_cast<size_t>(given.ratio);
    std::vector<float> own(scores.begin() + static_cast<ptrdiff_t>(r * n),
                           scores.begin() + static_cast<ptrdiff_t>(r * n + visible));
    const std::span<const float> want_row = std::span(want_scores).subspan(offset, visible);
    offset += visible;
    if (visible > 0 && fp8) {
      recorder_.f32_rows("index score (fp8 plane)", layer, own, want_row, static_cast<int64_t>(visible));
    } else if (visible > 0) {
      recorder_.bf16_rows("index score", layer, narrowed(own), narrowed(want_row), static_cast<int64_t>(visible));
    }
    const bool same = std::equal(own.begin(), own.end(), want_row.begin());

    const auto kept = std::span<const int32_t>(candidates).subspan(r * width, width);
    if (given.role == CandidateRole::kWrite) {
      const auto blocks = padded(blocks_of(own, given.candidate_size, given.candidate_blocks), given.candidate_blocks);
      recorder_.exact<int32_t>("candidates, own scores", layer, kept, blocks);
      if (same) {
        recorder_.exact("candidates, equal scores", layer, kept,
                        golden_.get<int32_t>(key(layer, "candidates")).subspan(r * width, width));
      }
    } else if (given.role == CandidateRole::kRead) {
      for (size_t j = 0; j < own.size(); ++j) {
        const auto block = static_cast<int32_t>(j) / given.candidate_size;
        if (std::find(kept.begin(), kept.end(), block) == kept.end()) own[j] = kNever;
      }
    }
    const auto chosen = std::span<const int32_t>(selected).subspan(r * topk, topk);
    recorder_.exact<int32_t>("selection, own scores", layer, chosen, padded(largest(own, given.topk), given.topk));
    if (same) recorder_.exact("selection, equal scores", layer, chosen, want_selected.subspan(r * topk, topk));
  }
}

}  // namespace folio::golden
