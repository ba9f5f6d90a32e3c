// Cases of ops that work row by row: norms, residual streams, rotation, routing, Engram, cache rows (op_cases.h).
#include <cstring>

#include "ops/op_cases.h"
#include "ops/request_cases.h"

namespace folio::op_cases {
namespace {

// The same bound for every element of every row.
std::vector<std::vector<float>> uniform_slack(int64_t rows, int64_t width, float bound) {
  return std::vector<std::vector<float>>(static_cast<size_t>(rows),
                                         std::vector<float>(static_cast<size_t>(width), bound));
}

Case norm_case(int64_t rows, int64_t cols) {
  Case c;
  c.name = "rms_norm_" + std::to_string(cols);
  c.rows = static_cast<int32_t>(rows);
  c.prepare = [=](Ops& ops) {
    Data data(static_cast<uint64_t>(cols));
    const std::vector<bf16> x = data.activations(rows * cols, 3.0f);
    std::shared_ptr<const Weight> weight = ops.prepare(WeightKind::kVector, data.vector(1, cols, 1.0f, 0.1f));
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      std::vector<bf16> y = choose(x, chosen_rows, cols);
      RmsNormArgs args;
      args.x = y.data();
      args.weight = weight.get();
      args.eps = 1e-20f;
      args.rows = static_cast<int64_t>(chosen_rows.size());
      args.cols = cols;
      args.out = y.data();
      ops.rms_norm(args);
      return Outputs{output("y", Kind::kBf16, y, cols)};
    };
  };
  return c;
}

Case mix_case(int64_t rows, int32_t streams, int64_t hidden) {
  Case c;
  c.name = "hyper_mix_" + std::to_string(streams) + "_" + std::to_string(hidden);
  c.rows = static_cast<int32_t>(rows);
  c.prepare = [=](Ops& ops) {
    auto data = std::make_shared<Data>(static_cast<uint64_t>(hidden + streams));
    const int64_t outputs = (2 + streams) * streams, width = streams * hidden;
    const std::vector<bf16> x = data->activations(rows * width);
    const WeightViews views = data->f32_matrix(outputs, width, 0.02f);
    std::shared_ptr<const Weight> fn = ops.prepare(WeightKind::kF32, views);
    std::shared_ptr<const Weight> scale = ops.prepare(WeightKind::kVector, data->vector(1, 3, 1.0f, 0.2f));
    std::shared_ptr<const Weight> base = ops.prepare(WeightKind::kVector, data->vector(1, outputs, 0.0f, 0.5f));
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      const std::vector<bf16> chosen = choose(x, chosen_rows, width);
      const size_t n = chosen_rows.size(), s = static_cast<size_t>(streams);
      std::vector<float> pre(n * s), post(n * s), comb(n * s * s);
      HyperMixArgs args;
      args.streams = chosen.data();
      args.fn = fn.get();
      args.scale = scale.get();
      args.base = base.get();
      args.rows = static_cast<int64_t>(n);
      args.num_streams = streams;
      args.hidden = hidden;
      args.iterations = 20;
      args.hc_eps = 1e-6f;
      args.norm_eps = 1e-20f;
      args.pre = pre.data();
      args.post = post.data();
      args.comb = comb.data();
      ops.hyper_mix(args);
      Outputs outputs_of = {output("pre", Kind::kF32, pre, streams), output("post", Kind::kF32, post, streams),
                            output("comb", Kind::kF32, comb, streams * streams)};
      for (Output& out : outputs_of) out.slack = uniform_slack(rows, streams * streams, 2e-5f);
      static_cast<void>(data);  // fn may alias it
      return outputs_of;
    };
  };
  return c;
}

Case streams_case(int64_t rows, int32_t streams, int64_t hidden) {
  Case c;
  c.name = "hyper_collapse_expand_" + std::to_string(streams) + "_" + std::to_string(hidden);
  c.rows = static_cast<int32_t>(rows);
  c.prepare = [=](Ops& ops) {
    Data data(static_cast<uint64_t>(hidden));
    const int64_t width = streams * hidden;
    const std::vector<bf16> x = data.activations(rows * width), y = data.activations(rows * hidden);
    const std::vector<float> mix = data.floats(rows * streams, 0.5f, 0.2f), post = data.floats(rows * streams, 1, 0.3f);
    const std::vector<float> comb = data.floats(rows * streams * streams, 0.25f, 0.1f);
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      std::vector<bf16> chosen = choose(x, chosen_rows, width);
      const std::vector<bf16> chosen_y = choose(y, chosen_rows, hidden);
      const std::vector<float> chosen_mix = choose(mix, chosen_rows, streams);
      const std::vector<float> chosen_post = choose(post, chosen_rows, streams);
      const std::vector<float> chosen_comb = choose(comb, chosen_rows, streams * streams);
      std::vector<bf16> collapsed(chosen_y.size());
      const auto n = static_cast<int64_t>(chosen_rows.size());
      ops.hyper_collapse({chosen.data(), chosen_mix.data(), n, streams, hidden, collapsed.data()});
      ops.hyper_expand({chosen.data(), chosen_y.data(), chosen_post.data(), chosen_comb.data(), n, streams, hidden});
      Outputs outputs = {output("collapsed", Kind::kBf16, collapsed, hidden),
                         output("expanded", Kind::kBf16, chosen, width)};
      for (Output& out : outputs) out.slack = uniform_slack(rows, width, 1e-4f);  // terms of up to 100 cancel
      return outputs;
    };
  };
  return c;
}

Case rotate_case(int64_t heads, int64_t dim, int64_t pairs, bool inverse) {
  Case c;
  c.name = "rotate_" + std::to_string(pairs) + (inverse ? "_inverse" : "");
  c.rows = 21;
  c.prepare = [=](Ops& ops) {
    Data data(static_cast<uint64_t>(dim));
    const std::vector<bf16> x = data.activations(21 * heads * dim);
    const std::vector<float> rope = data.floats(21 * pairs * 2, 0, 0.7f);
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      std::vector<bf16> y = choose(x, chosen_rows, heads * dim);
      const std::vector<float> table = choose(rope, chosen_rows, pairs * 2);
      ops.rotate({y.data(), static_cast<int64_t>(chosen_rows.size()), heads, dim, pairs, table.data(), inverse});
      // No sum of more than two terms and no fused products: the same bits on every backend.
      return Outputs{output("x", Kind::kBytes, y, heads * dim)};
    };
  };
  return c;
}

Case route_case(int32_t experts, int32_t k, int64_t hidden) {
  Case c;
  c.name = "route_" + std::to_string(experts);
  c.rows = 37;
  c.limits.max_linear_in = hidden;
  c.limits.max_experts = experts;
  c.prepare = [=](Ops& ops) {
    auto data = std::make_shared<Data>(static_cast<uint64_t>(experts));
    const std::vector<bf16> x = data->activations(37 * hidden);
    std::shared_ptr<const Weight> gate = ops.prepare(WeightKind::kBf16, data->bf16_matrix(experts, hidden, 0.1f));
    std::shared_ptr<const Weight> bias = ops.prepare(WeightKind::kVector, data->vector(1, experts, 0, 0.1f));
    std::shared_ptr<const Weight> other = ops.prepare(WeightKind::kVector, data->vector(1, experts, 0, 0.5f));
    std::vector<uint8_t> image;
    for (int r = 0; r < 37; ++r) image.push_back(static_cast<uint8_t>(data->below(2)));
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      const std::vector<bf16> chosen = choose(x, chosen_rows, hidden);
      const std::vector<uint8_t> chosen_image = choose(image, chosen_rows, 1);
      std::vector<int32_t> ids(chosen_rows.size() * static_cast<size_t>(k));
      std::vector<float> weights(ids.size());
      RouteArgs args;
      args.x = chosen.data();
      args.gate = gate.get();
      args.bias = bias.get();
      args.bias_image = other.get();
      args.image = chosen_image.data();
      args.rows = static_cast<int64_t>(chosen_rows.size());
      args.k = k;
      args.scale = 1.5f;
      args.ids = ids.data();
      args.weights = weights.data();
      ops.route(args);
      Outputs outputs = {output("ids", Kind::kBytes, ids, k), output("weights", Kind::kF32, weights, k)};
      outputs[1].slack = uniform_slack(37, k, 3e-6f);
      static_cast<void>(data);
      return outputs;
    };
  };
  return c;
}

Case gather_case(int64_t columns, int64_t dim, int exponent) {
  Case c;
  c.name = "engram_gather_" + std::to_string(dim) + (exponent < -60 ? "_tiny" : "");
  c.rows = 15;
  c.prepare = [=](Ops& ops) {
    auto data = std::make_shared<Data>(static_cast<uint64_t>(dim));
    std::shared_ptr<const Weight> table = ops.prepare(WeightKind::kFp8Rows, data->fp8_rows(97, dim, exponent));
    std::vector<int64_t> table_rows;
    for (int64_t i = 0; i < 15 * columns; ++i) table_rows.push_back(data->below(97));
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      const std::vector<int64_t> chosen = choose(table_rows, chosen_rows, columns);
      std::vector<bf16> y(chosen.size() * static_cast<size_t>(dim));
      ops.engram_gather({table.get(), chosen.data(), static_cast<int64_t>(chosen_rows.size()), columns, y.data()});
      static_cast<void>(data);
      return Outputs{output("y", Kind::kBytes, y, columns * dim)};
    };
  };
  return c;
}

Case inject_case(int32_t streams, int64_t hidden) {
  Case c;
  c.name = "engram_inject_" + std::to_string(hidden);
  c.rows = 17;
  c.prepare = [=](Ops& ops) {
    Data data(static_cast<uint64_t>(hidden));
    const int64_t width = streams * hidden, kv_width = (streams + 1) * hidden;
    const std::vector<bf16> x = data.activations(17 * width), kv = data.activations(17 * kv_width);
    std::shared_ptr<const Weight> q = ops.prepare(WeightKind::kVector, data.vector(streams, hidden, 1, 0.3f));
    std::shared_ptr<const Weight> k = ops.prepare(WeightKind::kVector, data.vector(streams, hidden, 1, 0.3f));
    std::vector<uint8_t> image;
    for (int r = 0; r < 17; ++r) image.push_back(static_cast<uint8_t>(data.below(3) == 0));
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      std::vector<bf16> y = choose(x, chosen_rows, width);
      const std::vector<bf16> chosen = choose(kv, chosen_rows, kv_width);
      const std::vector<uint8_t> chosen_image = choose(image, chosen_rows, 1);
      std::vector<float> gate(chosen_rows.size() * static_cast<size_t>(streams));
      EngramInjectArgs args;
      args.streams = y.data();
      args.kv = chosen.data();
      args.q_weight = q.get();
      args.k_weight = k.get();
      args.image = chosen_image.data();
      args.rows = static_cast<int64_t>(chosen_rows.size());
      args.num_streams = streams;
      args.hidden = hidden;
      args.norm_eps = 1e-20f;
      args.gate = gate.data();
      ops.engram_inject(args);
      Outputs outputs = {output("gate", Kind::kF32, gate, streams), output("x", Kind::kBf16, y, width)};
      outputs[0].slack = uniform_slack(17, streams, 1e-5f);
      outputs[1].slack = uniform_slack(17, width, 1e-4f);
      return outputs;
    };
  };
  return c;
}

Case encode_case(int32_t dim, RowFormat format) {
  Case c;
  c.name = "encode_window_" + std::to_string(dim) + (format == RowFormat::kBf16 ? "_bf16" : "");
  c.rows = 40;
  c.prepare = [=](Ops& ops) {
    Data data(static_cast<uint64_t>(dim));
    std::vector<bf16> x = data.activations(40 * dim);
    for (int64_t i = 0; i < dim; ++i) {
      x[static_cast<size_t>(i)] = to_bf16(1e-7f * data.normal());                       // below the floor of the scale
      x[static_cast<size_t>(dim + i)].bits = static_cast<uint16_t>(data.below(65536));  // anything, NaN included
      x[static_cast<size_t>(2 * dim + i)].bits = static_cast<uint16_t>(data.below(0x7f80) + (i % 2) * 0x8000);
    }
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      const std::vector<bf16> chosen = choose(x, chosen_rows, dim);
      EncodeWindowArgs args;
      args.ring.dim = dim;
      args.ring.format = format;
      args.ring.row_stride = code_bytes(format, dim) + scale_bytes(format, dim);
      std::vector<std::byte> out(chosen_rows.size() * static_cast<size_t>(args.ring.row_stride));
      args.x = chosen.data();
      args.rows = static_cast<int64_t>(chosen_rows.size());
      args.out = out.data();
      ops.encode_window(args);
      return Outputs{output("rows", Kind::kBytes, out, args.ring.row_stride)};
    };
  };
  return c;
}

Case compress_case(int32_t dim) {
  Case c;
  c.name = "compress_" + std::to_string(dim);
  c.rows = 14;
  c.prepare = [=](Ops& ops) {
    Data data(static_cast<uint64_t>(dim));
    auto all = std::make_shared<RequestRows>();
    all->add(0, 0, 7);
    all->add(1, 5, 7);
    // Inputs of every position, those before the step's rows included.
    const std::vector<float> kv = data.floats(2 * 12 * dim, 0, 1), gate = data.floats(2 * 12 * dim, 0, 2);
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      const ChosenRows step(*all, chosen_rows, nullptr);
      PendingRows pending;
      pending.ring_rows = 4;
      pending.dim = dim;
      pending.gate_offset = 4 * dim * 4;
      pending.slot_stride = 2 * pending.gate_offset;
      std::vector<float> rings(step.spans.size() * static_cast<size_t>(pending.slot_stride / 4));
      pending.base = reinterpret_cast<std::byte*>(rings.data());
      const auto input = [&](const std::vector<float>& x, size_t span, int32_t position) {
        return x.begin() + (step.request_of_span[span] * 12 + position) * dim;
      };
      for (const RequestSpan& span : step.spans) {
        const int32_t start = step.position[static_cast<size_t>(span.first_row)];
        for (int32_t p = std::max(0, start - 4); p < start; ++p) {
          std::copy_n(input(kv, static_cast<size_t>(span.slot), p), dim, pending.value(span.slot, p));
          std::copy_n(input(gate, static_cast<size_t>(span.slot), p), dim, pending.gate(span.slot, p));
        }
      }
      std::vector<float> step_kv, step_gate, last;
      for (size_t i = 0; i < chosen_rows.size(); ++i) {
        const auto span = static_cast<size_t>(step.span_of_row[i]);
        const auto value = input(kv, span, step.position[i]), weight = input(gate, span, step.position[i]);
        step_kv.insert(step_kv.end(), value, value + dim);
        step_gate.insert(step_gate.end(), weight, weight + dim);
      }
      std::vector<bf16> pooled(chosen_rows.size() * static_cast<size_t>(dim));
      ops.compress({step.rows, step_kv.data(), step_gate.data(), pending, pooled.data()});
      // The newest row of each span is in the ring now.
      for (size_t i = 0; i < chosen_rows.size(); ++i) {
        const RequestSpan& span = step.spans[static_cast<size_t>(step.span_of_row[i])];
        const int32_t newest = step.position[static_cast<size_t>(span.first_row + span.num_rows - 1)];
        last.push_back(*pending.gate(span.slot, newest) - *input(gate, static_cast<size_t>(span.slot), newest));
      }
      return Outputs{output("pooled", Kind::kBf16, pooled, dim), output("ring", Kind::kBytes, last, 1)};
    };
  };
  return c;
}

// What the row that completes an entry stores, in both writers and plane formats.
Case write_case(int32_t dim, RowFormat packed, RowFormat format) {
  Case c;
  c.name = std::string("write_") + (packed == RowFormat::kFp4Main ? "main_" : "index_") + std::to_string(dim) +
           (format == RowFormat::kBf16       ? "_bf16"
            : format == RowFormat::kFp8Index ? "_fp8"
                                             : "");
  c.rows = 20;
  c.prepare = [=](Ops& ops) {
    auto data = std::make_shared<Data>(static_cast<uint64_t>(dim));
    auto all = std::make_shared<RequestRows>();
    all->add(0, 3, 20);
    const std::vector<bf16> x = data->activations(20 * dim);
    return [=, &ops](const std::vector<int32_t>& chosen_rows) {
      Data pages(3);
      PagedPlane plane(pages, packed, format, dim, 4, {12}, 0.0f);
      const ChosenRows step(*all, chosen_rows, &plane);
      const std::vector<bf16> chosen = choose(x, chosen_rows, dim);
      const WritePagedArgs args{step.rows, 2, chosen.data(), plane.rows()};
      if (packed == RowFormat::kFp4Main) {
        ops.write_main(args);
      } else {
        ops.write_index(args);
      }
      const int64_t code_width = code_bytes(format, dim), scale_width = scale_bytes(format, dim);
      std::vector<std::byte> stored;
      for (size_t i = 0; i < chosen_rows.size(); ++i) {
        const RowAddress row = plane.rows().at(step.page_tables.data(), step.position[i] / 2);
        const bool completes = step.position[i] % 2 == 1;
        for (int64_t b = 0; b < code_width; ++b) stored.push_back(completes ? row.codes[b] : std::byte{0});
        for (int64_t b = 0; b < scale_width; ++b) stored.push_back(completes ? row.scales[b] : std::byte{0});
      }
      return Outputs{output("stored", Kind::kBytes, stored, code_width + scale_width)};
    };
  };
  return c;
}

}  // namespace

std::vector<Case> row_cases() {
  std::vector<Case> cases;
  for (int64_t cols : {64, 100, 512, 1024}) cases.push_back(norm_case(19, cols));
  cases.push_back(mix_case(13, 4, 128));
  cases.push_back(mix_case(7, 4, 1024));
  cases.push_back(mix_case(5, 3, 50));
  cases.push_back(streams_case(23, 4, 128));
  cases.push_back(streams_case(9, 3, 75));
  for (bool inverse : {false, true}) {
    cases.push_back(rotate_case(3, 64, 16, inverse));
    cases.push_back(rotate_case(16, 512, 32, inverse));
    cases.push_back(rotate_case(2, 20, 5, inverse));
  }
  cases.push_back(route_case(16, 3, 128));
  cases.push_back(route_case(64, 6, 256));
  cases.push_back(route_case(5, 1, 96));
  cases.push_back(gather_case(6, 32, -8));
  cases.push_back(gather_case(24, 256, -8));
  cases.push_back(gather_case(3, 96, -110));
  cases.push_back(inject_case(4, 128));
  cases.push_back(inject_case(2, 333));
  for (RowFormat format : {RowFormat::kFp8Window, RowFormat::kBf16}) {
    cases.push_back(encode_case(64, format));
    cases.push_back(encode_case(512, format));
  }
  cases.push_back(compress_case(64));
  cases.push_back(compress_case(100));
  for (RowFormat format : {RowFormat::kFp4Main, RowFormat::kBf16}) {
    cases.push_back(write_case(64, RowFormat::kFp4Main, format));
  }
  for (RowFormat format : {RowFormat::kFp4Index, RowFormat::kFp8Index})
    cases.push_back(write_case(128, format, format));
  return cases;
}

}  // namespace folio::op_cases
