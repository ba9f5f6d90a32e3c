// The DSpark draft head (spec/model.md 9): what it keeps of every step's rows, and the blocks that it drafts.
#include <algorithm>

#include "base/error.h"
#include "model/transformer.h"

namespace folio {

// What the stages see of a target layer's input, beside that of the others.
void Transformer::tap(Pass& pass, int layer) {
  const std::vector<int>& targets = config_.dspark_target_layer_ids;
  const auto found = std::find(targets.begin(), targets.end(), layer);
  if (found == targets.end()) return;
  const int64_t hidden = config_.hidden_size;
  ops_.stream_means({.streams = pass.at->streams,
                     .rows = pass.count,
                     .num_streams = static_cast<int32_t>(config_.hc_mult),
                     .hidden = hidden,
                     .out = ws_.taps + (found - targets.begin()) * hidden,
                     .out_stride = std::ssize(targets) * hidden});
}

// A context row of every stage for each row that the decoder layers run. Rows of drafts that will be rejected are
// written too: they lie in the slack of the rings and are written again before anybody reads them.
void Transformer::write_draft_context(Pass& pass) {
  const int64_t rows = pass.rows.count;
  if (rows == 0) return;
  const DraftWeights& draft = weights_.draft;
  bf16* input = ws_.output;
  ops_.quantized_linear({.weight = draft.main_proj.get(), .x = ws_.taps, .rows = rows, .out = input});
  norm(input, draft.main_norm.get(), rows, input);
  pass.trace.put("mtp.main_x", input, {rows, config_.hidden_size});
  for (size_t stage = 0; stage < draft.stages.size(); ++stage) {
    const RingRows& ring = pass.cache.window[static_cast<size_t>(config_.num_hidden_layers) + stage];
    window_latent(draft.stages[stage].attention, input, rows, pass.row_buffers->rope_plain);
    pass.trace.window(concat("mtp.", stage, ".context"), ws_.latent, rows, config_.head_dim);
    ops_.encode_window({.x = ws_.latent, .rows = rows, .ring = ring, .out = ws_.window_rows});
    ops_.write_window({.rows = pass.rows, .encoded = ws_.window_rows, .ring = ring});
  }
}

DraftOutputs Transformer::draft(const Step& step, const CacheView& cache, TraceSink* trace) {
  if (step.draft.num_requests == 0) return {};
  FOLIO_CHECK(has_draft_head() && step.draft.num_requests <= max_drafting_ && step.draft.width <= draft_width_);
  Pass pass{.step = step, .cache = cache, .trace = Tracer(trace), .rows = {}};
  begin_draft(pass);
  for (size_t stage = 0; stage < weights_.draft.stages.size(); ++stage) draft_stage(pass, stage);
  return draft_heads(pass);
}

void Transformer::begin_draft(Pass& pass) {
  const DraftInputs& in = pass.step.draft;
  const RowBuffers& buffers = ws_.all;
  ops_.begin_draft({.inputs = in,
                    .cursors = pass.cache.cursors,
                    .cursor_stride = pass.cache.cursor_stride,
                    .noise = config_.dspark_noise_token_id,
                    .rope_pairs = static_cast<int32_t>(config_.qk_rope_head_dim / 2),
                    .frequencies = plain_frequencies_.data(),
                    .ids = ws_.ids,
                    .positions = buffers.positions,
                    .image = buffers.image,
                    .rope = buffers.rope_plain});
  pass.at = pass.row_buffers = &buffers;
  pass.count = in.rows();
  pass.rows = {.count = in.rows(),
               .num_requests = in.num_requests,
               .spans = in.spans,
               .request = in.row_request,
               .position = buffers.positions,
               .image = buffers.image};
  ops_.embed({.table = weights_.embed.get(),
              .ids = ws_.ids,
              .rows = in.rows(),
              .streams = static_cast<int32_t>(config_.hc_mult),
              .out = buffers.streams,
              .mix = buffers.mix});
}

void Transformer::draft_stage(Pass& pass, size_t stage) {
  const BlockWeights& weights = weights_.draft.stages[stage];
  const AttentionWeights& attention = weights.attention;
  const int layer = config_.num_hidden_layers + static_cast<int>(stage);
  const int64_t n = pass.count;
  const std::string key = concat("draft.mtp.", stage);
  const RingRows& ring = pass.cache.window[static_cast<size_t>(layer)];
  const float* rope = pass.at->rope_plain;

  begin_block(pass, weights, key);
  attention_mix(pass, weights, key);
  window_latent(attention, pass.at->input, n, rope);
  ops_.encode_window({.x = ws_.latent, .rows = n, .ring = ring, .out = ws_.window_rows});
  queries(pass, attention, rope, key);
  ops_.attend({.rows = pass.rows,
               .decoder = true,
               .block = pass.step.draft.width,
               .query = ws_.query,
               .encoded = ws_.window_rows,
               .ring = ring,
               .window = static_cast<int32_t>(config_.sliding_window),
               .main = {},
               .sink = attention.sink.get(),
               .heads = static_cast<int32_t>(config_.num_attention_heads),
               .dim = static_cast<int32_t>(config_.head_dim),
               .out = ws_.core});
  attention_output(pass, attention, rope);
  end_attention(pass, key);
  feed_forward(pass, weights, layer, key);
}

DraftOutputs Transformer::draft_heads(Pass& pass) {
  const DraftWeights& draft = weights_.draft;
  const DraftInputs& in = pass.step.draft;
  collapse_streams(pass);
  pass.trace.put("draft.hidden", ws_.output, {pass.count, config_.hidden_size});
  norm(ws_.output, draft.norm.get(), pass.count, ws_.all.input);
  ops_.linear({.weight = weights_.head.get(), .x = ws_.all.input, .rows = pass.count, .out_f32 = ws_.logits});
  ops_.draft_heads({.num_requests = in.num_requests,
                    .width = in.width,
                    .anchors = ws_.ids,
                    .hidden = ws_.output,
                    .embed = draft.markov_embed.get(),
                    .head = draft.markov_head.get(),
                    .confidence = draft.confidence.get(),
                    .logits = ws_.logits,
                    .params = pass.step.draft_sampling,
                    .positions = ws_.all.positions,
                    .tokens = ws_.draft_tokens,
                    .confidences = ws_.confidences,
                    .candidates = ws_.draft_candidates});
  return {.tokens = ws_.draft_tokens,
          .confidences = ws_.confidences,
          .logits = ws_.logits,
          .candidates = pass.step.draft_sampling != nullptr ? ws_.draft_candidates : nullptr};
}

}  // namespace folio
