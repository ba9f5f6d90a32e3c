// Cases of attention (op_cases.h): window only and with selected rows, packed and bf16 rows.
#include <algorithm>
#include <cstring>

#include "ops/op_cases.h"
#include "ops/request_cases.h"

namespace folio::op_cases {
namespace {

struct AttendShape {
  const char* name;
  int32_t heads, dim, window, topk, ratio;  // topk 0: window only
  bool packed;
};

// Everything that the rows of an attention case read.
struct AttendInputs {
  Data data;
  RequestRows rows;
  std::unique_ptr<PagedPlane> main;
  RingRows ring;                                // without memory
  std::vector<std::vector<std::byte>> latents;  // encoded window row of every position of each request
  std::vector<bf16> query;
  std::vector<int32_t> selected;

  AttendInputs(const AttendShape& shape, uint64_t seed) : data(seed) {
    // A fresh prompt, a chunk across the end of the window, one token late in a long request, one at position 0.
    rows.add(0, 0, 9);
    rows.add(1, shape.window - 4, 11);
    rows.add(2, 3 * shape.window + 5, 1);
    rows.add(3, 0, 1);
    std::vector<int32_t> lengths(4, 0);
    for (int32_t i = 0; i < rows.size(); ++i) {
      int32_t& length = lengths[static_cast<size_t>(rows.request[static_cast<size_t>(i)])];
      length = std::max(length, rows.position[static_cast<size_t>(i)] + 1);
    }
    ring.format = shape.packed ? RowFormat::kFp8Window : RowFormat::kBf16;
    ring.dim = shape.dim;
    ring.ring_rows = shape.window;
    ring.row_stride = code_bytes(ring.format, shape.dim) + scale_bytes(ring.format, shape.dim);
    ring.slot_stride = ring.row_stride * ring.ring_rows + 64;
    for (int32_t length : lengths) {
      std::vector<std::byte> bytes(static_cast<size_t>(length * ring.row_stride));
      for (int32_t p = 0; p < length; ++p) {
        std::vector<float> x;
        for (bf16 v : data.activations(shape.dim)) x.push_back(to_float(v));
        encode_row(RowFormat::kFp8Window, ring.format, x.data(), shape.dim, ring.row_at(bytes.data(), p));
      }
      latents.push_back(std::move(bytes));
    }
    std::vector<int32_t> entries;
    for (int32_t length : lengths) entries.push_back(length / shape.ratio);
    main = std::make_unique<PagedPlane>(
        data, RowFormat::kFp4Main, shape.packed ? RowFormat::kFp4Main : RowFormat::kBf16, shape.dim, 8, entries, 1.0f);
    query = data.activations(static_cast<int64_t>(rows.size()) * shape.heads * shape.dim);
    for (int32_t r = 0; r < rows.size(); ++r) {
      const int32_t visible = (rows.position[static_cast<size_t>(r)] + 1) / shape.ratio;
      std::vector<int32_t> list;
      for (int32_t j = 0; j < visible; ++j) list.push_back(j);
      while (static_cast<int32_t>(list.size()) > shape.topk) {
        list.erase(list.begin() + data.below(static_cast<uint32_t>(list.size())));
      }
      list.resize(static_cast<size_t>(shape.topk), -1);
      selected.insert(selected.end(), list.begin(), list.end());
    }
  }
};

Outputs run_attend(Ops& ops, const AttendShape& shape, AttendInputs& in, const Weight* sink,
                   const std::vector<int32_t>& chosen) {
  const ChosenRows step(in.rows, chosen, in.main.get());
  const auto stride = static_cast<size_t>(in.ring.row_stride);
  std::vector<std::byte> encoded(chosen.size() * stride);
  std::vector<std::byte> rings(step.spans.size() * static_cast<size_t>(in.ring.slot_stride), std::byte{0xff});
  RingRows ring = in.ring;
  ring.base = rings.data();
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto& bytes = in.latents[static_cast<size_t>(in.rows.request[static_cast<size_t>(chosen[i])])];
    std::memcpy(&encoded[i * stride], &bytes[static_cast<size_t>(step.position[i]) * stride], stride);
  }
  for (size_t s = 0; s < step.spans.size(); ++s) {
    const auto& bytes = in.latents[static_cast<size_t>(step.request_of_span[s])];
    const int32_t start = step.position[static_cast<size_t>(step.spans[s].first_row)];
    for (int32_t p = std::max(0, start - ring.ring_rows); p < start; ++p) {
      std::memcpy(ring.at(step.spans[s].slot, p).codes, &bytes[static_cast<size_t>(p) * stride], stride);
    }
  }
  const int64_t width = static_cast<int64_t>(shape.heads) * shape.dim;
  const std::vector<bf16> query = choose(in.query, chosen, width);
  const std::vector<int32_t> selected = choose(in.selected, chosen, shape.topk);
  std::vector<bf16> y(query.size());
  AttendArgs args;
  args.rows = step.rows;
  args.query = query.data();
  args.encoded = encoded.data();
  args.ring = ring;
  args.window = shape.window;
  args.main = in.main->rows();
  args.selected = shape.topk > 0 ? selected.data() : nullptr;
  args.topk = shape.topk;
  args.sink = sink;
  args.heads = shape.heads;
  args.dim = shape.dim;
  args.out = y.data();
  ops.attend(args);
  Output out = output("o", Kind::kBf16, y, width);
  // A probability that rounds to the neighbouring bf16 value moves all outputs of its head a little.
  out.flips = 0.05;
  out.flip_l2 = 0.0025;
  return {out};
}

Case attend_case(const AttendShape& shape) {
  Case c;
  c.name = std::string("attend_") + shape.name;
  c.rows = 22;
  c.limits.max_rows = 22;
  c.limits.heads = shape.heads;
  c.limits.head_dim = shape.dim;
  c.limits.list_length = shape.window + shape.topk;
  c.prepare = [shape](Ops& ops) {
    auto inputs = std::make_shared<AttendInputs>(shape, static_cast<uint64_t>(shape.dim + shape.topk));
    std::shared_ptr<const Weight> sink =
        ops.prepare(WeightKind::kVector, inputs->data.vector(1, shape.heads, 0.5f, 1.0f));
    return [=, &ops](const std::vector<int32_t>& rows) { return run_attend(ops, shape, *inputs, sink.get(), rows); };
  };
  return c;
}

}  // namespace

std::vector<Case> attention_cases() {
  std::vector<Case> cases;
  for (const AttendShape& shape :
       {AttendShape{"nano", 8, 64, 16, 16, 2, true}, AttendShape{"nano_bf16", 8, 64, 16, 16, 2, false},
        AttendShape{"window_only", 8, 128, 32, 0, 1, true}, AttendShape{"slots", 5, 96, 32, 90, 1, true},
        AttendShape{"heads", 16, 512, 128, 64, 1, true}, AttendShape{"heads_bf16", 16, 512, 128, 64, 2, false}}) {
    cases.push_back(attend_case(shape));
  }
  return cases;
}

}  // namespace folio::op_cases
