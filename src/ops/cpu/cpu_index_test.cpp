// Index selection over long histories: a row reads no key past its own bound, and scratch grows by a few bytes a key.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "ops/cpu/cpu_test.h"
#include "ops/request_cases.h"

namespace folio {
namespace {

using namespace op_cases;

constexpr int32_t kHeads = 8, kDim = 128, kTopk = 16, kEntries = 400;
constexpr RowFormat kFormats[] = {RowFormat::kFp4Index, RowFormat::kFp8Index};

OpsLimits index_limits(int64_t visible, RowFormat format) {
  OpsLimits limits;
  limits.index_heads = kHeads;
  limits.index_dim = kDim;
  limits.index_format = format;
  limits.max_visible = visible;
  return limits;
}

// What one row selects at `position`.
std::vector<int32_t> selected_at(Ops& ops, Data& inputs, const PagedPlane& keys, int32_t position) {
  const std::vector<bf16> query = inputs.activations(kHeads * kDim), weights = inputs.activations(kHeads);
  RequestRows all;
  all.add(0, position, 1);
  const ChosenRows step(all, {0}, &keys);
  std::vector<int32_t> selected(kTopk, -7);
  IndexSelectArgs args;
  args.rows = step.rows;
  args.query = query.data();
  args.head_weights = weights.data();
  args.heads = kHeads;
  args.keys = keys.rows();
  args.topk = kTopk;
  args.selected = selected.data();
  ops.index_select(args);
  return selected;
}

// NaN keys behind the bound, which would win every comparison, change nothing.
TEST(CpuIndex, ARowReadsNothingPastItsBound) {
  for (const RowFormat format : kFormats) {
    const std::unique_ptr<Ops> ops = make_cpu_ops({"", 2});
    ops->reserve(index_limits(kEntries, format));
    for (const int32_t position : {40, 127, 128, 255, 301, 398}) {
      Data first(3), again(3), planes(1), poisoned_planes(1);
      const PagedPlane clean(planes, format, format, kDim, 16, {kEntries}, 1.0f);
      const PagedPlane poisoned(poisoned_planes, format, format, kDim, 16, {kEntries}, 1.0f);
      for (int32_t entry = position + 1; entry < kEntries; ++entry) {
        const RowAddress row = poisoned.rows().at(poisoned.tables().data(), entry);
        std::memset(row.codes, 0xff, static_cast<size_t>(code_bytes(format, kDim)));
        std::memset(row.scales, 0xff, static_cast<size_t>(scale_bytes(format, kDim)));
      }
      const std::vector<int32_t> selected = selected_at(*ops, first, clean, position);
      EXPECT_EQ(selected, selected_at(*ops, again, poisoned, position)) << position;
      EXPECT_LE(selected.back(), position);
    }
  }
}

int64_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  return pages * 4096;
}

// Scores and block maxima, at most four bytes each: far less than a copy of the keys (68 or 129 bytes here).
TEST(CpuIndex, ScratchIsAFewBytesAKey) {
  constexpr int64_t kFew = 1 << 10, kMany = 4 << 20;
  const auto scratch = [](int64_t visible, RowFormat format) {
    const std::unique_ptr<Ops> ops = make_cpu_ops({"", 1});
    const int64_t before = mapped_bytes();
    ops->reserve(index_limits(visible, format));
    return mapped_bytes() - before;
  };
  for (const RowFormat format : kFormats) {
    const int64_t score_bytes = format == RowFormat::kFp8Index ? 4 : 2;
    EXPECT_LE(scratch(kMany, format) - scratch(kFew, format), 2 * score_bytes * kMany + (1 << 20));
  }
}

}  // namespace
}  // namespace folio
