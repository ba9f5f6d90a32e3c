#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"

namespace folio {
namespace {

SlotCursor& cursor(std::byte* cursors, int64_t stride, int32_t slot) {
  return *reinterpret_cast<SlotCursor*>(cursors + slot * stride);
}

// A slot at position span.start, as if the tokens before it had been run there.
void restart(SlotCursor& state, const RequestSpan& span, const EngramHash& hash) {
  state = SlotCursor{};
  state.position = span.start;
  for (int lag = 0; lag < kMaxEngramHistory; ++lag) {
    const int32_t id = span.history[lag];
    state.history[lag] = id < 0 || hash.num_layers == 0 ? kDeadId : hash.compressed[id];
  }
}

// cos and sin of the fp32 angle position * frequency (spec 5.3), evaluated in double and rounded once.
void rotation_row(int32_t position, const float* frequencies, int32_t pairs, float* out) {
  for (int32_t j = 0; j < pairs; ++j) {
    const double angle = static_cast<float>(position) * frequencies[j];
    out[2 * j] = static_cast<float>(std::cos(angle));
    out[2 * j + 1] = static_cast<float>(std::sin(angle));
  }
}

// Table rows of one row in every Engram layer (spec 8.3). ids[lag] is the compressed id `lag` positions back.
void hash_row(const EngramHash& hash, const int32_t* ids, int64_t* out, int64_t layer_stride) {
  int32_t window[kMaxEngramHistory + 1];
  bool blocked = false;
  for (int32_t lag = 0; lag < hash.max_ngram; ++lag) {
    blocked = blocked || ids[lag] == kDeadId;
    window[lag] = blocked ? hash.pad : ids[lag];
  }
  for (int32_t layer = 0; layer < hash.num_layers; ++layer) {
    const int64_t* multipliers = hash.multipliers + layer * hash.max_ngram;
    const int64_t* primes = hash.primes + layer * hash.columns();
    const int64_t* offsets = hash.offsets + layer * hash.columns();
    int64_t* row = out + layer * layer_stride;
    int64_t mixed = window[0] * multipliers[0];
    for (int32_t lag = 1; lag < hash.max_ngram; ++lag) {
      mixed ^= window[lag] * multipliers[lag];
      for (int32_t head = 0; head < hash.heads; ++head) {
        const int32_t column = (lag - 1) * hash.heads + head;
        row[column] = mixed % primes[column] + offsets[column];
      }
    }
  }
}

}  // namespace

void ReferenceOps::reserve(const OpsLimits& limits) {
  adjusted_.resize(static_cast<size_t>(limits.vocab));
  weights_.resize(static_cast<size_t>(limits.vocab));
  candidates_.resize(static_cast<size_t>(limits.vocab));
  sums_.resize(static_cast<size_t>(SampleScratch::blocks(limits.vocab)));
  sample_scratch_ = {
      .adjusted = adjusted_.data(), .weights = weights_.data(), .candidates = candidates_.data(), .sums = sums_.data()};
}

void ReferenceOps::begin_step(const BeginStepArgs& args) {
  const StepInputs& in = args.inputs;
  const EngramHash& hash = args.engram;
  for (int32_t s = 0; s < in.num_requests; ++s) {
    const RequestSpan& span = in.spans[s];
    SlotCursor& state = cursor(args.cursors, args.cursor_stride, span.slot);
    if (span.restart) restart(state, span, hash);
    for (int32_t i = 0; i < span.num_rows; ++i) {
      const int32_t row = span.first_row + i;
      const RowInput& input = in.row_inputs[row];
      const auto position = static_cast<int32_t>(state.position) + i;
      args.positions[row] = position;
      args.image[row] = in.row_image[row];
      switch (input.source) {
        case RowSource::kToken:
          args.ids[row] = input.value;
          break;
        case RowSource::kLastToken:
          args.ids[row] = state.last_token;
          break;
        case RowSource::kEmbedding:
          args.ids[row] = -1;
          break;
      }
      const int64_t rope = static_cast<int64_t>(row) * args.rope_pairs * 2;
      rotation_row(position, args.plain_frequencies, args.rope_pairs, args.rope_plain + rope);
      rotation_row(position, args.scaled_frequencies, args.rope_pairs, args.rope_scaled + rope);
      rotation_row(position / 2 * 2, args.scaled_frequencies, args.rope_pairs, args.rope_group + rope);

      if (hash.num_layers == 0) continue;
      const bool dead = in.row_image[row] != 0 || args.ids[row] < 0;
      args.compressed[row] = dead ? kDeadId : hash.compressed[args.ids[row]];
      int32_t ids[kMaxEngramHistory + 1];
      for (int32_t lag = 0; lag < hash.max_ngram; ++lag) {
        ids[lag] = lag <= i ? args.compressed[row - lag] : state.history[lag - i - 1];
      }
      hash_row(hash, ids, args.engram_rows + static_cast<int64_t>(row) * hash.columns(), args.engram_layer_stride);
    }
  }
}

void ReferenceOps::embed(const EmbedArgs& args) {
  const HostWeight& table = host(args.table);
  const int64_t hidden = table.in();
  for (int64_t row = 0; row < args.rows; ++row) {
    const RowInput input = args.row_inputs != nullptr ? args.row_inputs[row] : RowInput{};
    const void* source = input.source == RowSource::kEmbedding
                             ? static_cast<const void*>(args.embeddings + input.value * hidden)
                             : static_cast<const void*>(table.values + args.ids[row] * hidden);
    for (int32_t s = 0; s < args.streams; ++s) {
      std::memcpy(args.out + (row * args.streams + s) * hidden, source, static_cast<size_t>(hidden) * sizeof(bf16));
      args.mix[row * args.streams + s] = s == 0 ? 1.0f : 0.0f;
    }
  }
}

void ReferenceOps::gather_rows(const GatherRowsArgs& args) {
  const auto* x = static_cast<const std::byte*>(args.x);
  auto* out = static_cast<std::byte*>(args.out);
  for (int64_t i = 0; i < args.rows; ++i) {
    std::memcpy(out + i * args.row_bytes, x + args.index[i] * args.row_bytes, static_cast<size_t>(args.row_bytes));
  }
}

void ReferenceOps::commit(const CommitArgs& args) {
  const StepInputs& in = args.inputs;
  for (int32_t s = 0; s < in.num_requests; ++s) {
    const RequestSpan& span = in.spans[s];
    SlotCursor& state = cursor(args.cursors, args.cursor_stride, span.slot);
    const int32_t rows = args.committed != nullptr ? args.committed[s] : span.num_rows;
    state.position += rows;
    if (args.compressed != nullptr) {
      // Newest first; the older part of the history shifts back by the committed rows.
      for (int32_t lag = kMaxEngramHistory - 1; lag >= 0; --lag) {
        state.history[lag] = lag < rows ? args.compressed[span.first_row + rows - 1 - lag] : state.history[lag - rows];
      }
    }
    if (args.sampled == nullptr || span.sampled_row < 0) continue;
    const int32_t accepted = rows - (span.num_rows - span.num_drafts);
    state.last_token = args.sampled[span.sampled_row + accepted];
  }
}

void ReferenceOps::begin_draft(const BeginDraftArgs& args) {
  const DraftInputs& in = args.inputs;
  for (int32_t row = 0; row < in.rows(); ++row) {
    const int32_t slot = in.spans[in.row_request[row]].slot, i = row % in.width;
    const auto& state = *reinterpret_cast<const SlotCursor*>(args.cursors + slot * args.cursor_stride);
    args.ids[row] = i == 0 ? state.last_token : args.noise;
    args.positions[row] = static_cast<int32_t>(state.position) + i;
    args.image[row] = 0;
    rotation_row(args.positions[row], args.frequencies, args.rope_pairs,
                 args.rope + int64_t{row} * args.rope_pairs * 2);
  }
}

}  // namespace folio
