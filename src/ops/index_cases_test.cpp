// Cases of index selection (op_cases.h): scores against the reference, decisions against a plain sort of the scores.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/op_cases.h"
#include "ops/request_cases.h"

namespace folio::op_cases {
namespace {

struct IndexShape {
  const char* name;
  int32_t heads, dim, ratio, topk, length, rows_per_page;
  CandidateRole role;
  int32_t blocks, size;
  RowFormat format = RowFormat::kFp4Index;
};

// Indices of the k largest values, ascending, the lowest index on ties: the rule written plainly.
std::vector<int32_t> largest(const std::vector<float>& values, const std::vector<int32_t>& from, int32_t k) {
  std::vector<int32_t> order = from;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(std::min(order.size(), static_cast<size_t>(k)));
  std::sort(order.begin(), order.end());
  return order;
}

struct IndexInputs {
  Data data;
  RequestRows rows;
  std::unique_ptr<PagedPlane> keys;
  std::vector<bf16> query, weights;
  std::vector<int32_t> pool;  // [rows, blocks] candidate blocks to read

  IndexInputs(const IndexShape& shape, uint64_t seed) : data(seed) {
    rows.add(0, shape.length - 9, 9);
    rows.add(1, 0, 5);
    rows.add(2, shape.length / 2, 1);
    keys = std::make_unique<PagedPlane>(data, shape.format, shape.format, shape.dim, shape.rows_per_page,
                                        std::vector<int32_t>{shape.length, 8, shape.length / 2 + 1}, 1.0f);
    query = data.activations(static_cast<int64_t>(rows.size()) * shape.heads * shape.dim);
    weights = data.activations(static_cast<int64_t>(rows.size()) * shape.heads, 0.1f);
    for (int32_t r = 0; r < rows.size(); ++r) {
      const int32_t visible = (rows.position[static_cast<size_t>(r)] + 1) / shape.ratio;
      std::vector<int32_t> list(static_cast<size_t>((visible + shape.size - 1) / shape.size));
      std::iota(list.begin(), list.end(), 0);
      // Never the newest one: it is always in a pool.
      while (static_cast<int32_t>(list.size()) > shape.blocks) {
        list.erase(list.begin() + data.below(static_cast<uint32_t>(list.size()) - 1));
      }
      list.resize(static_cast<size_t>(shape.blocks), -1);
      pool.insert(pool.end(), list.begin(), list.end());
    }
  }
};

// Rows whose decisions do not follow from the scores that the op itself reported.
int32_t wrong_decisions(const IndexShape& shape, const std::vector<float>& scores, int32_t visible,
                        const int32_t* selected, const int32_t* candidates) {
  const std::vector<float> values(scores.begin(), scores.begin() + visible);
  std::vector<int32_t> from;
  for (int32_t j = 0; j < visible; ++j) {
    const bool in_pool = std::find(candidates, candidates + shape.blocks, j / shape.size) != candidates + shape.blocks;
    if (shape.role != CandidateRole::kRead || in_pool) from.push_back(j);
  }
  std::vector<int32_t> expected = largest(values, from, shape.topk);
  expected.resize(static_cast<size_t>(shape.topk), -1);
  int32_t wrong = std::equal(expected.begin(), expected.end(), selected) ? 0 : 1;
  if (shape.role == CandidateRole::kWrite) {
    const int32_t count = (visible + shape.size - 1) / shape.size;
    std::vector<float> best(static_cast<size_t>(count), -1e30f);
    for (int32_t j = 0; j < visible; ++j) {
      float& block = best[static_cast<size_t>(j / shape.size)];
      block = std::max(block, values[static_cast<size_t>(j)]);
    }
    if (count > 0) best.back() = 1e30f;
    std::vector<int32_t> all(best.size());
    std::iota(all.begin(), all.end(), 0);
    std::vector<int32_t> kept = largest(best, all, shape.blocks);
    kept.resize(static_cast<size_t>(shape.blocks), -1);
    wrong += std::equal(kept.begin(), kept.end(), candidates) ? 0 : 1;
  }
  return wrong;
}

std::vector<bf16> narrowed(const std::vector<float>& values) {
  std::vector<bf16> out;
  for (const float value : values) out.push_back(to_bf16(value));
  return out;
}

// What another order of fp32 sums may move the scores of an fp8 plane by: 2^-24 for each addition on the longest chain,
// of the sum of all magnitudes.
std::vector<std::vector<float>> fp8_slack(const IndexShape& shape, const IndexInputs& in,
                                          const std::vector<int32_t>& chosen, const ChosenRows& step) {
  const double steps = shape.dim + shape.heads + 2;
  const auto dim = static_cast<size_t>(shape.dim);
  std::vector<std::vector<float>> slack;
  for (size_t i = 0; i < chosen.size(); ++i) {
    std::vector<float> row(static_cast<size_t>(shape.length), 0.0f), key(dim);
    const auto first = static_cast<size_t>(chosen[i]) * static_cast<size_t>(shape.heads);
    const int32_t visible = step.rows.visible(static_cast<int32_t>(i), shape.ratio);
    const int32_t* table =
        step.rows.page_tables + static_cast<int64_t>(step.rows.request[i]) * step.rows.page_table_stride;
    for (int32_t j = 0; j < visible; ++j) {
      const RowAddress at = in.keys->rows().at(table, j);
      decode_row(shape.format, at.codes, at.scales, shape.dim, key.data());
      double magnitude = 0;
      for (size_t h = 0; h < static_cast<size_t>(shape.heads); ++h) {
        double dot = 0;
        for (size_t d = 0; d < dim; ++d) {
          dot +=
              std::fabs(static_cast<double>(key[d]) * static_cast<double>(to_float(in.query[(first + h) * dim + d])));
        }
        magnitude += dot * std::fabs(static_cast<double>(to_float(in.weights[first + h])));
      }
      row[static_cast<size_t>(j)] = static_cast<float>(magnitude * steps * 0x1p-24);
    }
    slack.push_back(std::move(row));
  }
  return slack;
}

Outputs run_index(Ops& ops, const IndexShape& shape, const IndexInputs& in, const std::vector<int32_t>& chosen) {
  const ChosenRows step(in.rows, chosen, in.keys.get());
  const std::vector<bf16> query = choose(in.query, chosen, static_cast<int64_t>(shape.heads) * shape.dim);
  const std::vector<bf16> weights = choose(in.weights, chosen, shape.heads);
  std::vector<int32_t> selected(chosen.size() * static_cast<size_t>(shape.topk), -7), again = selected;
  std::vector<int32_t> candidates = choose(in.pool, chosen, shape.blocks);
  if (shape.role == CandidateRole::kWrite) std::fill(candidates.begin(), candidates.end(), -7);
  std::vector<int32_t> candidates_again = candidates;
  std::vector<float> scores(chosen.size() * static_cast<size_t>(shape.length));
  IndexSelectArgs args;
  args.rows = step.rows;
  args.ratio = shape.ratio;
  args.query = query.data();
  args.head_weights = weights.data();
  args.heads = shape.heads;
  args.keys = in.keys->rows();
  args.topk = shape.topk;
  args.selected = selected.data();
  args.role = shape.role;
  args.candidate_blocks = shape.blocks;
  args.candidate_size = shape.size;
  args.candidates = candidates.data();
  args.scores = scores.data();
  args.scores_stride = shape.length;
  ops.index_select(args);
  args.scores = nullptr;
  args.selected = again.data();
  args.candidates = candidates_again.data();
  ops.index_select(args);

  std::vector<int32_t> wrong;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const std::vector<float> row(scores.begin() + static_cast<ptrdiff_t>(i) * shape.length,
                                 scores.begin() + static_cast<ptrdiff_t>(i + 1) * shape.length);
    wrong.push_back(wrong_decisions(shape, row, step.rows.visible(static_cast<int32_t>(i), shape.ratio),
                                    selected.data() + i * static_cast<size_t>(shape.topk),
                                    candidates.data() + i * static_cast<size_t>(shape.blocks)));
  }
  // The same with and without a trace.
  if (selected != again || candidates != candidates_again) wrong.front() += 100;
  const bool fp8 = shape.format == RowFormat::kFp8Index;
  Outputs outputs = {fp8 ? output("scores", Kind::kF32, scores, shape.length)
                         : output("scores", Kind::kBf16, narrowed(scores), shape.length),
                     output("wrong decisions", Kind::kBytes, wrong, 1),
                     output("selected", Kind::kDecision, selected, shape.topk),
                     output("candidates", Kind::kDecision, candidates, shape.blocks)};
  if (fp8 && ops.name() == "ref") {
    outputs[0].slack = fp8_slack(shape, in, chosen, step);
  } else if (!fp8) {
    // bf(relu(d) * w) flips at ties; a head is a sixteenth of the sum or so, so a flip may move the sum by a few ulps.
    outputs[0].flips = 0.001;
    outputs[0].flip_l2 = 0.004;
  }
  return outputs;
}

Case index_case(const IndexShape& shape) {
  Case c;
  c.name = std::string("index_select_") + shape.name;
  c.rows = 15;
  c.limits.max_rows = 15;
  c.limits.index_heads = shape.heads;
  c.limits.index_dim = shape.dim;
  c.limits.index_format = shape.format;
  c.limits.max_visible = shape.length;
  c.prepare = [shape](Ops& ops) {
    auto inputs = std::make_shared<IndexInputs>(shape, static_cast<uint64_t>(shape.length + shape.dim));
    return [=, &ops](const std::vector<int32_t>& rows) { return run_index(ops, shape, *inputs, rows); };
  };
  return c;
}

}  // namespace

std::vector<Case> index_cases() {
  std::vector<Case> cases;
  for (const IndexShape& shape : {
           IndexShape{"nano", 16, 64, 2, 16, 90, 8, CandidateRole::kNone, 8, 4},
           IndexShape{"nano_write", 16, 64, 1, 16, 77, 16, CandidateRole::kWrite, 8, 4},
           IndexShape{"nano_read", 16, 64, 1, 16, 77, 16, CandidateRole::kRead, 8, 4},
           IndexShape{"heads", 32, 128, 1, 64, 300, 16, CandidateRole::kWrite, 16, 8},
           IndexShape{"bench_read", 16, 64, 1, 128, 1500, 32, CandidateRole::kRead, 60, 8},
           IndexShape{"long", 16, 64, 1, 512, 2500, 64, CandidateRole::kNone, 4, 8},
           IndexShape{"odd", 3, 96, 1, 5, 61, 9, CandidateRole::kWrite, 4, 3},
           IndexShape{"one_block", 2, 32, 1, 7, 40, 5, CandidateRole::kNone, 4, 8},
           IndexShape{"wide", 4, 256, 1, 9, 50, 5, CandidateRole::kNone, 4, 8},
           IndexShape{"fp8_nano", 16, 64, 2, 16, 90, 8, CandidateRole::kNone, 8, 4, RowFormat::kFp8Index},
           IndexShape{"fp8_write", 32, 128, 1, 64, 300, 16, CandidateRole::kWrite, 16, 8, RowFormat::kFp8Index},
           IndexShape{"fp8_read", 16, 64, 1, 128, 1500, 32, CandidateRole::kRead, 60, 8, RowFormat::kFp8Index},
           IndexShape{"fp8_long", 16, 64, 1, 512, 2500, 64, CandidateRole::kNone, 4, 8, RowFormat::kFp8Index},
           IndexShape{"fp8_odd", 3, 96, 1, 5, 61, 9, CandidateRole::kWrite, 4, 3, RowFormat::kFp8Index},
           IndexShape{"fp8_one_block", 11, 32, 1, 7, 40, 5, CandidateRole::kNone, 4, 8, RowFormat::kFp8Index},
           IndexShape{"fp8_wide", 4, 256, 1, 9, 50, 5, CandidateRole::kNone, 4, 8, RowFormat::kFp8Index},
       }) {
    cases.push_back(index_case(shape));
  }
  return cases;
}

}  // namespace folio::op_cases
