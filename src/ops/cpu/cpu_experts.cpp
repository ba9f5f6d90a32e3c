// The experts of a step, grouped: rows are sorted by expert, so that an expert's weights are widened once for all its
// rows. Two passes: w1 and w3 with SwiGLU, whose tiles are rounded and packed on the spot, then w2 by tiles of hidden
// outputs, each walking the experts in ascending order, so that the sum of a row never depends on its company.
#include <algorithm>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"

namespace folio::cpu {

void CpuOps::experts(const ExpertsArgs& args) {
  FOLIO_CHECK(args.k <= limits_.max_topk_experts, args.k);
  const int64_t block = std::min(kExpertRows, limits_.max_rows);
  FOLIO_CHECK(block > 0, "reserve() first");
  for (int64_t row0 = 0; row0 < args.rows; row0 += block) {
    expert_block(args, row0, std::min(block, args.rows - row0));
  }
}

// Sorts the pairs (row, expert) by expert, rows ascending, and cuts them into work items; returns their number.
int64_t CpuOps::group_by_expert(const ExpertsArgs& args, int64_t row0, int64_t rows, int64_t num_experts) {
  Scratch& s = scratch_;
  const int32_t* ids = args.ids + row0 * args.k;
  const float* weights = args.weights + row0 * args.k;
  int32_t* begin = s.expert_begin;
  std::fill(begin, begin + num_experts + 2, 0);
  for (int64_t i = 0; i < rows * args.k; ++i) {
    FOLIO_CHECK(ids[i] >= 0 && ids[i] < num_experts, ids[i]);
    ++begin[ids[i] + 2];
  }
  for (int64_t e = 0; e < num_experts; ++e) begin[e + 2] += begin[e + 1];
  // begin[e + 1] is now the first pair of e; it becomes the end of e while the pairs are placed.
  for (int64_t i = 0; i < rows * args.k; ++i) {
    const int32_t pair = begin[ids[i] + 1]++;
    s.pair_row[pair] = static_cast<int32_t>(i / args.k);
    s.pair_weight[pair] = weights[i];
  }
  const auto routed = static_cast<int32_t>(rows * args.k);
  for (int32_t r = 0; r < rows; ++r) {
    s.pair_row[routed + r] = r;
    s.pair_weight[routed + r] = 1.0f;
  }
  begin[num_experts] = routed;
  begin[num_experts + 1] = routed + static_cast<int32_t>(rows);

  // The shared expert has the most rows: first, so that nobody waits for it at the end.
  int64_t items = 0;
  for (int64_t i = num_experts; i >= 0; --i) {
    for (int32_t pair = begin[i]; pair < begin[i + 1]; pair += kTileRows) {
      s.work[items++] = {static_cast<int32_t>(i), pair, std::min(static_cast<int32_t>(kTileRows), begin[i + 1] - pair)};
    }
  }
  return items;
}

void CpuOps::expert_up(const CpuExperts& all, float limit, const ExpertWork& work, int64_t first,
                       const ThreadScratch& scratch, const std::byte* next) const {
  const Scratch& s = scratch_;
  const CpuExperts::Projections& m = all.matrices[static_cast<size_t>(work.expert)];
  const bool shared = work.expert == static_cast<int32_t>(all.routed.size());
  const int64_t count = std::min(kUpTile, m.w1.out - first);
  const PackedRows x{shared ? s.packed_shared : s.packed, packed_stride(m.w1.in), s.pair_row + work.first_pair,
                     work.pairs};
  tile(m.w1, first, count, x, {nullptr, scratch.gate, kUpTile}, scratch, matrix_row(m.w3, first));
  tile(m.w3, first, count, x, {nullptr, scratch.up, kUpTile}, scratch, next);
  for (int64_t i = 0; i < work.pairs; ++i) {
    uint16_t *gate = scratch.gate + i * kUpTile, *up = scratch.up + i * kUpTile;
    const int64_t pair = work.first_pair + i;
    kernels_.swiglu({gate, up, limit, s.pair_weight[pair], count, gate});
    kernels_.pack({m.w2.format, true, gate, count,
                   s.activations + pair * packed_stride(m.w2.in) + first * kernels_.operand_bytes});
  }
}

// Outputs [first, first + width) of w2 for every row of the block, summed over its experts.
void CpuOps::expert_down(const CpuExperts& all, bf16* out, int64_t rows, int64_t first, int64_t width,
                         const ThreadScratch& scratch) const {
  const Scratch& s = scratch_;
  const int64_t hidden = all.in(), stride = packed_stride(all.out());
  const int64_t count = std::min(width, hidden - first);
  const auto shared = static_cast<int64_t>(all.routed.size());
  const auto used = [&](int64_t e) {
    while (e <= shared && s.expert_begin[e] == s.expert_begin[e + 1]) ++e;
    return e;
  };
  std::fill(scratch.sums, scratch.sums + rows * width, 0.0f);
  for (int64_t e = used(0), following = 0; e <= shared; e = following) {
    following = used(e + 1);
    const Matrix& w2 = all.matrices[static_cast<size_t>(e)].w2;
    const std::byte* next =
        following <= shared ? matrix_row(all.matrices[static_cast<size_t>(following)].w2, first) : nullptr;
    for (int64_t pair = s.expert_begin[e]; pair < s.expert_begin[e + 1]; pair += kTileRows) {
      const PackedRows x{s.activations + pair * stride, stride, nullptr,
                         std::min(kTileRows, s.expert_begin[e + 1] - pair)};
      tile(w2, first, count, x, {nullptr, scratch.gate, width}, scratch, next);
      for (int64_t i = 0; i < x.rows; ++i) {
        const int64_t row = s.pair_row[pair + i];
        const uint16_t* y = scratch.gate + i * width;
        float* sums = scratch.sums + row * width;
        if (e < shared) {
          kernels_.accumulate(y, count, sums);
        } else {
          kernels_.accumulate_last(y, sums, count, bits_of(out) + row * hidden + first);
        }
      }
    }
  }
}

void CpuOps::expert_block(const ExpertsArgs& args, int64_t row0, int64_t rows) {
  const CpuExperts& all = experts_of(args.experts);
  const int64_t hidden = all.in(), inner = all.out();
  const auto num_experts = static_cast<int64_t>(all.routed.size());
  FOLIO_CHECK(num_experts <= limits_.max_experts && inner <= limits_.expert_inner && hidden <= limits_.hidden);
  const uint16_t* x = bits_of(args.x) + row0 * hidden;
  pack_rows({Format::kFp4, true, x, hidden, scratch_.packed}, hidden, packed_stride(hidden), rows);
  pack_rows({Format::kFp8, true, x, hidden, scratch_.packed_shared}, hidden, packed_stride(hidden), rows);
  const int64_t items = group_by_expert(args, row0, rows, num_experts);
  const auto scratch = [&](int thread) -> const ThreadScratch& {
    return scratch_.threads[static_cast<size_t>(thread)];
  };

  const int64_t up_tiles = (inner + kUpTile - 1) / kUpTile, up_tasks = items * up_tiles;
  pool_.parallel_tasks(up_tasks, [&](int64_t task, int thread) {
    const ExpertWork& work = scratch_.work[task / up_tiles];
    const std::byte* next = nullptr;  // w1 of the task behind, which is this thread's more often than not
    if (task + 1 < up_tasks) {
      const auto expert = static_cast<size_t>(scratch_.work[(task + 1) / up_tiles].expert);
      next = matrix_row(all.matrices[expert].w1, (task + 1) % up_tiles * kUpTile);
    }
    expert_up(all, args.limit, work, task % up_tiles * kUpTile, scratch(thread), next);
  });
  // Few rows read long stretches of each w2; many rows share what a short one widens.
  const int64_t share = (hidden / (2 * pool_.threads()) + kDownTile - 1) / kDownTile * kDownTile;
  const int64_t width = rows <= kFewRows ? std::clamp(share, kDownTile, kTileRows * kUpTile / kFewRows) : kDownTile;
  pool_.parallel_tasks((hidden + width - 1) / width, [&](int64_t task, int thread) {
    expert_down(all, args.out + row0 * hidden, rows, task * width, width, scratch(thread));
  });
}

}  // namespace folio::cpu
