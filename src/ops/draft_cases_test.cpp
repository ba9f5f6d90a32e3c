// Cases of drafting (op_cases.h). A row is a whole block of one request, since its rows see each other.
#include <cstring>

#include "ops/op_cases.h"
#include "ops/row_codec.h"

namespace folio::op_cases {
namespace {

struct BlockShape {
  const char* name;
  int32_t heads, dim, window, width;
  bool packed;
};

// Blocks behind contexts of other lengths: shorter than the window, whole, at and beside its multiples, one whose
// beginning a floor cuts off.
struct Block {
  int32_t start;  // position of its first row
  int32_t floor;
};

std::vector<Block> blocks_of(int32_t window) {
  return {{1, 0},          {window - 1, 0},
          {window, 0},     {window + 1, 0},
          {2 * window, 0}, {2 * window + 7, 0},
          {3 * window, 3}, {2 * window + 5, window + 9},
          {window + 2, 2}, {5 * window - 1, 4 * window}};
}

struct BlockInputs {
  Data data;
  RingRows ring;                                // without memory; one slot for each block
  std::vector<std::vector<std::byte>> context;  // whole ring of each block; NaN patterns where nothing may be read
  std::vector<std::byte> encoded;               // [blocks, width, row_stride]
  std::vector<bf16> query;                      // [blocks, width, heads, dim]

  BlockInputs(const BlockShape& shape, const std::vector<Block>& blocks) : data(static_cast<uint64_t>(shape.dim)) {
    ring.format = shape.packed ? RowFormat::kFp8Window : RowFormat::kBf16;
    ring.dim = shape.dim;
    ring.ring_rows = shape.window + shape.width;
    ring.row_stride = code_bytes(ring.format, shape.dim) + scale_bytes(ring.format, shape.dim);
    ring.slot_stride = ring.row_stride * ring.ring_rows;
    const auto encode = [&](std::byte* rows, int64_t index) {
      std::vector<float> x;
      for (const bf16 v : data.activations(shape.dim)) x.push_back(to_float(v));
      encode_row(RowFormat::kFp8Window, ring.format, x.data(), shape.dim, ring.row_at(rows, index));
    };
    for (const Block& block : blocks) {
      std::vector<std::byte> rows(static_cast<size_t>(ring.slot_stride), std::byte{0xff});
      for (int32_t p = std::max(block.floor, block.start - shape.window); p < block.start; ++p) {
        encode(rows.data(), p % ring.ring_rows);
      }
      context.push_back(std::move(rows));
    }
    encoded.resize(blocks.size() * static_cast<size_t>(shape.width * ring.row_stride));
    for (int64_t i = 0; i < std::ssize(blocks) * shape.width; ++i) encode(encoded.data(), i);
    query = data.activations(std::ssize(blocks) * shape.width * shape.heads * shape.dim);
  }
};

Outputs run_blocks(Ops& ops, const BlockShape& shape, const std::vector<Block>& blocks, const BlockInputs& in,
                   const Weight* sink, const std::vector<int32_t>& chosen) {
  std::vector<RequestSpan> spans;
  std::vector<int32_t> request, position;
  std::vector<std::byte> rings;
  for (const int32_t i : chosen) {
    const Block& block = blocks[static_cast<size_t>(i)];
    const auto index = static_cast<int32_t>(spans.size());
    spans.push_back({.first_row = index * shape.width,
                     .num_rows = shape.width,
                     .slot = index,
                     .window_floor = 0,
                     .decoder_start = block.floor});
    for (int32_t row = 0; row < shape.width; ++row) {
      request.push_back(index);
      position.push_back(block.start + row);
    }
    const std::vector<std::byte>& context = in.context[static_cast<size_t>(i)];
    rings.insert(rings.end(), context.begin(), context.end());
  }
  const int64_t width = int64_t{shape.width} * shape.heads * shape.dim;
  const std::vector<std::byte> encoded = choose(in.encoded, chosen, shape.width * in.ring.row_stride);
  const std::vector<bf16> query = choose(in.query, chosen, width);
  std::vector<bf16> out(query.size());
  AttendArgs args;
  args.rows = {.count = static_cast<int32_t>(request.size()),
               .num_requests = static_cast<int32_t>(spans.size()),
               .spans = spans.data(),
               .request = request.data(),
               .position = position.data()};
  args.decoder = true;
  args.block = shape.width;
  args.query = query.data();
  args.encoded = encoded.data();
  args.ring = in.ring;
  args.ring.base = rings.data();
  args.window = shape.window;
  args.sink = sink;
  args.heads = shape.heads;
  args.dim = shape.dim;
  args.out = out.data();
  ops.attend(args);
  Output o = output("o", Kind::kBf16, out, width);
  o.flips = 0.05;  // as in other attention cases
  o.flip_l2 = 0.0025;
  return {o};
}

Case block_case(const BlockShape& shape) {
  Case c;
  const std::vector<Block> blocks = blocks_of(shape.window);
  c.name = std::string("attend_block_") + shape.name;
  c.rows = static_cast<int32_t>(blocks.size());
  c.limits.max_rows = c.rows * shape.width;
  c.limits.heads = shape.heads;
  c.limits.head_dim = shape.dim;
  c.limits.list_length = shape.window + shape.width;
  c.prepare = [shape, blocks](Ops& ops) {
    const auto inputs = std::make_shared<BlockInputs>(shape, blocks);
    std::shared_ptr<const Weight> sink =
        ops.prepare(WeightKind::kVector, inputs->data.vector(1, shape.heads, 0.5f, 1.0f));
    return [=, &ops](const std::vector<int32_t>& rows) {
      return run_blocks(ops, shape, blocks, *inputs, sink.get(), rows);
    };
  };
  return c;
}

// `draws`: every second request draws its drafts.
Case heads_case(int32_t requests, int32_t width, int64_t vocab, int64_t hidden, int64_t rank, bool draws) {
  Case c;
  c.name = "draft_heads_" + std::to_string(vocab) + (draws ? "_drawn" : "");
  c.rows = requests;
  c.limits.max_rows = requests * width;
  c.limits.max_linear_in = hidden + rank;
  c.limits.hidden = hidden;
  c.limits.vocab = vocab;
  c.limits.max_drafting = requests;
  c.limits.markov_rank = rank;
  c.prepare = [=](Ops& ops) {
    auto data = std::make_shared<Data>(static_cast<uint64_t>(vocab));
    const std::vector<float> logits = data->floats(requests * width * vocab, 0, 2);
    const std::vector<bf16> x = data->activations(requests * width * hidden);
    std::vector<int32_t> anchors;
    for (int32_t i = 0; i < requests * width; ++i) {
      anchors.push_back(static_cast<int32_t>(data->below(static_cast<uint32_t>(vocab))));
    }
    std::shared_ptr<const Weight> embed = ops.prepare(WeightKind::kBf16, data->bf16_matrix(vocab, rank, 1.0f));
    std::shared_ptr<const Weight> head = ops.prepare(WeightKind::kBf16, data->bf16_matrix(vocab, rank, 0.3f));
    std::shared_ptr<const Weight> confidence =
        ops.prepare(WeightKind::kBf16, data->bf16_matrix(1, hidden + rank, 0.1f));
    std::vector<SamplingParams> sampling;
    std::vector<int32_t> at;
    for (int32_t i = 0; i < requests; ++i) {
      sampling.push_back({.temperature = i % 2 == 0 ? 0.8f : 0.0f,
                          .top_k = i % 3 == 2 ? 7 : 0,
                          .top_p = i % 4 == 0 ? 0.9f : 1.0f,
                          .seed = static_cast<uint64_t>(i)});
      for (int32_t row = 0; row < width; ++row) at.push_back(100 * i + row);
    }
    return [=, &ops, keep = data](const std::vector<int32_t>& rows) {
      const std::vector<SamplingParams> params = choose(sampling, rows, 1);
      const std::vector<int32_t> positions = choose(at, rows, width);
      std::vector<float> y = choose(logits, rows, width * vocab);
      const std::vector<bf16> chosen = choose(x, rows, width * hidden);
      const std::vector<int32_t> first = choose(anchors, rows, width);
      std::vector<int32_t> tokens(first.size());
      std::vector<float> confidences(first.size()), probabilities;
      std::vector<DraftCandidate> candidates(first.size() * kDraftCandidates);
      ops.draft_heads({.num_requests = static_cast<int32_t>(rows.size()),
                       .width = width,
                       .anchors = first.data(),
                       .hidden = chosen.data(),
                       .embed = embed.get(),
                       .head = head.get(),
                       .confidence = confidence.get(),
                       .logits = y.data(),
                       .params = draws ? params.data() : nullptr,
                       .positions = positions.data(),
                       .tokens = tokens.data(),
                       .confidences = confidences.data(),
                       .candidates = candidates.data()});
      for (const DraftCandidate& candidate : candidates) probabilities.push_back(candidate.probability);
      // Sums of `rank` and `hidden + rank` terms of about 1.
      const auto bounded = [](Output out, size_t elements, float slack) {
        out.slack.assign(out.rows.size(), std::vector<float>(elements, slack));
        return out;
      };
      const auto w = static_cast<size_t>(width);
      return Outputs{output("tokens", Kind::kBytes, tokens, width),
                     bounded(output("logits", Kind::kF32, y, width * vocab), w * static_cast<size_t>(vocab), 2e-4f),
                     bounded(output("confidences", Kind::kF32, confidences, width), w, 2e-3f),
                     bounded(output("probabilities", Kind::kF32, probabilities, width * kDraftCandidates),
                             w * kDraftCandidates, 2e-4f)};
    };
  };
  return c;
}

Case stream_means_case(int32_t streams, int64_t hidden) {
  constexpr int32_t kRows = 19;
  Case c;
  c.name = "stream_means_" + std::to_string(streams) + "_" + std::to_string(hidden);
  c.rows = kRows;
  c.prepare = [=](Ops& ops) {
    Data data(static_cast<uint64_t>(hidden + streams));
    return [=, &ops, x = data.activations(kRows * streams * hidden)](const std::vector<int32_t>& rows) {
      const std::vector<bf16> chosen = choose(x, rows, streams * hidden);
      const int64_t stride = 3 * hidden;
      std::vector<bf16> taps(rows.size() * static_cast<size_t>(stride), to_bf16(7));
      ops.stream_means({.streams = chosen.data(),
                        .rows = std::ssize(rows),
                        .num_streams = streams,
                        .hidden = hidden,
                        .out = taps.data() + hidden,
                        .out_stride = stride});
      return Outputs{output("taps", streams == 4 ? Kind::kBytes : Kind::kBf16, taps, stride)};
    };
  };
  return c;
}

}  // namespace

std::vector<Case> draft_cases() {
  std::vector<Case> cases;
  for (const BlockShape& shape : {BlockShape{"nano", 8, 64, 16, 5, true}, BlockShape{"nano_bf16", 8, 64, 16, 3, false},
                                  BlockShape{"mini", 5, 128, 32, 5, true}, BlockShape{"heads", 16, 512, 128, 5, true},
                                  BlockShape{"heads_one", 16, 512, 128, 1, false}}) {
    cases.push_back(block_case(shape));
  }
  cases.push_back(heads_case(7, 5, 512, 128, 64, false));
  cases.push_back(heads_case(7, 5, 512, 128, 64, true));
  cases.push_back(heads_case(3, 2, 1000, 96, 32, false));
  cases.push_back(stream_means_case(4, 128));
  cases.push_back(stream_means_case(3, 96));
  return cases;
}

}  // namespace folio::op_cases
