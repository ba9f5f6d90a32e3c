#include "model/transformer.h"

#include <algorithm>

#include "base/error.h"
#include "model/rope.h"

namespace folio {
namespace {

WorkspaceLimits workspace_limits(const Geometry& geometry, const TransformerLimits& limits) {
  return {.max_rows = limits.max_rows,
          .max_head_rows = limits.max_head_rows,
          .window_row_bytes = geometry.window_rows(nullptr, 0).row_stride,
          .trace_scores = limits.trace ? limits.max_model_len : 0,
          .max_draft_rows = limits.max_drafting * limits.draft_width};
}

OpsLimits backbone_limits(const Config& config, const Geometry& geometry, const TransformerLimits& limits) {
  return {.max_rows = limits.max_rows,
          .max_linear_in =
              std::max({config.hidden_size, config.q_lora_rank, config.o_groups * config.o_lora_rank,
                        config.num_attention_heads * config.head_dim / config.o_groups,
                        config.engram_layer_ids.empty() ? 0 : config.engram_columns() * config.engram_head_dim}),
          .hidden = config.hidden_size,
          .expert_inner = config.moe_intermediate_size,
          .max_experts = static_cast<int32_t>(config.n_routed_experts),
          .max_topk_experts = static_cast<int32_t>(config.num_experts_per_tok),
          .heads = static_cast<int32_t>(config.num_attention_heads),
          .head_dim = static_cast<int32_t>(config.head_dim),
          .list_length = static_cast<int32_t>(config.sliding_window + config.index_topk),
          .index_heads = static_cast<int32_t>(config.index_n_heads),
          .index_dim = static_cast<int32_t>(config.index_head_dim),
          .index_format = geometry.inputs().format.index(),
          .max_visible = limits.max_model_len,
          .vocab = config.vocab_size};
}

OpsLimits ops_limits(const Config& config, const Geometry& geometry, const TransformerLimits& limits) {
  OpsLimits all = backbone_limits(config, geometry, limits);
  if (limits.draft_width == 0) return all;
  all.max_rows = std::max(all.max_rows, limits.max_drafting * limits.draft_width);
  all.max_linear_in = std::max({all.max_linear_in, std::ssize(config.dspark_target_layer_ids) * config.hidden_size,
                                config.hidden_size + config.dspark_markov_rank});
  all.max_experts = std::max(all.max_experts, static_cast<int32_t>(config.dspark_n_routed_experts));
  all.max_topk_experts = std::max(all.max_topk_experts, static_cast<int32_t>(config.dspark_num_experts_per_tok));
  all.list_length = std::max(all.list_length, static_cast<int32_t>(config.sliding_window) + limits.draft_width);
  all.max_drafting = limits.max_drafting;
  all.markov_rank = config.dspark_markov_rank;
  return all;
}

Buffer allocate_workspace(Device& device, const Config& config, const Geometry& geometry,
                          const TransformerLimits& limits) {
  return Buffer(device, workspace_bytes(config, geometry, limits));
}

Workspace place_workspace(Buffer& memory, const Config& config, const Geometry& geometry,
                          const TransformerLimits& limits) {
  Arena arena(memory);
  return Workspace(arena, config, workspace_limits(geometry, limits));
}

}  // namespace

GeometryInputs geometry_inputs(const Config& config, const Topology& topology, int32_t block_size, CacheFormat format,
                               int32_t draft_width) {
  const int layers = draft_width > 0 ? config.total_layers() : config.num_hidden_layers;
  GeometryInputs inputs{.owners = {},
                        .window_layers = static_cast<int32_t>(layers),
                        .window = static_cast<int32_t>(config.sliding_window),
                        .slack = draft_width,
                        .head_dim = static_cast<int32_t>(config.head_dim),
                        .index_dim = static_cast<int32_t>(config.index_head_dim),
                        .block_size = block_size,
                        .format = format};
  for (const int layer : topology.kv_owners) inputs.owners.push_back({.layer = layer, .ratio = topology[layer].ratio});
  return inputs;
}

int64_t workspace_bytes(const Config& config, const Geometry& geometry, const TransformerLimits& limits) {
  Arena measure;
  Workspace(measure, config, workspace_limits(geometry, limits));
  return measure.used();
}

Transformer::Transformer(Device& device, Ops& ops, const Checkpoint& checkpoint, const Topology& topology,
                         std::vector<int32_t> compressed, const Geometry& geometry, const TransformerLimits& limits)
    : config_(checkpoint.config()),
      topology_(topology),
      ops_(ops),
      weights_(load_weights(ops, checkpoint, topology, limits.draft_width > 0)),
      engram_hash_(config_, std::move(compressed)),
      plain_frequencies_(rope_frequencies(config_, false)),
      scaled_frequencies_(rope_frequencies(config_, true)),
      memory_(allocate_workspace(device, config_, geometry, limits)),
      ws_(place_workspace(memory_, config_, geometry, limits)),
      max_rows_(limits.max_rows),
      max_drafting_(limits.max_drafting),
      draft_width_(limits.draft_width),
      trace_scores_(limits.trace ? limits.max_model_len : 0) {
  ops_.reserve(ops_limits(config_, geometry, limits));
}

StepOutputs Transformer::forward(const Step& step, const CacheView& cache, TraceSink* trace) {
  FOLIO_CHECK(step.inputs.num_rows > 0 && step.inputs.num_rows <= max_rows_);
  Pass pass{.step = step, .cache = cache, .trace = Tracer(trace), .rows = {}};
  begin(pass);
  bool rows_left = true;
  for (int layer = 0; layer < config_.num_hidden_layers && rows_left; ++layer) {
    if (topology_[layer].engram >= 0) engram(pass, layer);
    rows_left = block(pass, layer);
  }
  if (has_draft_head()) write_draft_context(pass);
  const StepOutputs outputs = rows_left ? head(pass) : StepOutputs{};
  ops_.commit({.inputs = step.inputs,
               .cursors = cache.cursors,
               .cursor_stride = cache.cursor_stride,
               .compressed = config_.engram_layer_ids.empty() ? nullptr : ws_.compressed,
               .sampled = outputs.sampled,
               .committed = outputs.committed});
  return outputs;
}

void Transformer::begin(Pass& pass) {
  const StepInputs& in = pass.step.inputs;
  ops_.begin_step({.inputs = in,
                   .cursors = pass.cache.cursors,
                   .cursor_stride = pass.cache.cursor_stride,
                   .engram = engram_hash_.view(),
                   .rope_pairs = static_cast<int32_t>(config_.qk_rope_head_dim / 2),
                   .plain_frequencies = plain_frequencies_.data(),
                   .scaled_frequencies = scaled_frequencies_.data(),
                   .ids = ws_.ids,
                   .positions = ws_.all.positions,
                   .image = ws_.all.image,
                   .compressed = ws_.compressed,
                   .engram_rows = ws_.engram_rows,
                   .engram_layer_stride = max_rows_ * (config_.engram_layer_ids.empty() ? 0 : config_.engram_columns()),
                   .rope_plain = ws_.all.rope_plain,
                   .rope_scaled = ws_.all.rope_scaled,
                   .rope_group = ws_.rope_group});
  pass.at = pass.row_buffers = &ws_.all;
  pass.count = in.num_rows;
  pass.rows = {.count = in.num_rows,
               .num_requests = in.num_requests,
               .spans = in.spans,
               .request = in.row_request,
               .position = ws_.all.positions,
               .image = ws_.all.image,
               .page_tables = in.page_tables,
               .page_table_stride = in.page_table_stride};
  ops_.embed({.table = weights_.embed.get(),
              .row_inputs = in.row_inputs,
              .ids = ws_.ids,
              .embeddings = in.embeddings,
              .rows = in.num_rows,
              .streams = static_cast<int32_t>(config_.hc_mult),
              .out = ws_.all.streams,
              .mix = ws_.all.mix});
}

void Transformer::narrow(Pass& pass, const RowBuffers& to, const int32_t* index, int64_t count) {
  const auto gather = [&](const auto* from, auto* out, int64_t width) {
    ops_.gather_rows({.x = from, .index = index, .rows = count, .row_bytes = width * int64_t{sizeof *out}, .out = out});
  };
  const RowBuffers& from = *pass.at;
  gather(from.streams, to.streams, config_.hc_mult * config_.hidden_size);
  gather(from.mix, to.mix, config_.hc_mult);
  gather(from.input, to.input, config_.hidden_size);
  gather(from.positions, to.positions, 1);
  gather(from.image, to.image, 1);
  gather(from.rope_plain, to.rope_plain, config_.qk_rope_head_dim);
  gather(from.rope_scaled, to.rope_scaled, config_.qk_rope_head_dim);
  pass.at = &to;
  pass.count = count;
}

void Transformer::norm(const bf16* x, const Weight* weight, int64_t rows, bf16* out) {
  ops_.rms_norm({.x = x,
                 .weight = weight,
                 .eps = static_cast<float>(config_.rms_norm_eps),
                 .rows = rows,
                 .cols = weight->in(),
                 .out = out});
}

void Transformer::rotate(bf16* x, int64_t rows, int64_t heads, int64_t dim, const float* rope, bool inverse) {
  ops_.rotate({.x = x,
               .rows = rows,
               .heads = heads,
               .dim = dim,
               .pairs = config_.qk_rope_head_dim / 2,
               .rope = rope,
               .inverse = inverse});
}

StepOutputs Transformer::head(Pass& pass) {
  const int64_t hidden = config_.hidden_size;
  const StepInputs& in = pass.step.inputs;
  StepOutputs outputs;
  if (in.num_head_rows == 0 && !pass.trace.wants("hidden")) return outputs;
  collapse_streams(pass);
  pass.trace.put("hidden", ws_.output, {pass.count, hidden});
  if (in.num_head_rows == 0) return outputs;
  const bf16* rows = ws_.output;
  if (pass.count != in.num_head_rows) {
    ops_.gather_rows({.x = ws_.output,
                      .index = in.head_in_decoder,
                      .rows = in.num_head_rows,
                      .row_bytes = hidden * int64_t{sizeof(bf16)},
                      .out = ws_.head.input});
    rows = ws_.head.input;
  }
  norm(rows, weights_.norm.get(), in.num_head_rows, ws_.head.input);
  ops_.linear({.weight = weights_.head.get(), .x = ws_.head.input, .rows = in.num_head_rows, .out_f32 = ws_.logits});
  outputs.logits = ws_.logits;
  if (pass.step.sampling != nullptr) {
    ops_.sample({.logits = ws_.logits,
                 .vocab = config_.vocab_size,
                 .num_rows = in.num_head_rows,
                 .head_rows = in.head_rows,
                 .positions = ws_.all.positions,
                 .params = pass.step.sampling,
                 .lists = pass.step.lists,
                 .sampled = ws_.sampled,
                 .logprobs = ws_.logprobs,
                 .top = ws_.top});
    outputs.sampled = ws_.sampled;
    outputs.logprobs = ws_.logprobs;
    outputs.top = ws_.top;
    ops_.verify({.inputs = in, .ids = ws_.ids, .sampled = ws_.sampled, .committed = ws_.committed});
    outputs.committed = ws_.committed;
  }
  return outputs;
}

// What the head sees of the streams, before its norm.
void Transformer::collapse_streams(Pass& pass) {
  ops_.hyper_collapse({.streams = pass.at->streams,
                       .mix = pass.at->mix,
                       .rows = pass.count,
                       .num_streams = static_cast<int32_t>(config_.hc_mult),
                       .hidden = config_.hidden_size,
                       .out = ws_.output});
}

}  // namespace folio
