// Nothing is allocated inside an op (ops.h): counts calls of operator new around whole ops. Sanitizers have an operator
// new of their own, so the test is not there.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FOLIO_OWN_ALLOCATOR 1
#endif
#endif
#ifndef FOLIO_OWN_ALLOCATOR

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "ops/cpu/cpu_test.h"
#include "ops/request_cases.h"

namespace {

std::atomic<int64_t> g_allocations{0};

}  // namespace

void* operator new(size_t bytes) {
  ++g_allocations;
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): this is the allocator
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
// Also the one that does not throw: all must match operator delete.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++g_allocations;
  return std::malloc(bytes > 0 ? bytes : 1);  // NOLINT(cppcoreguidelines-no-malloc)
}
void operator delete(void* memory) noexcept { std::free(memory); }          // NOLINT(cppcoreguidelines-no-malloc)
void operator delete(void* memory, size_t) noexcept { std::free(memory); }  // NOLINT(cppcoreguidelines-no-malloc)

namespace folio {
namespace {

using namespace op_cases;

template <typename Op>
int64_t allocations_of(const Op& op) {
  op();  // what the first call may set up once
  const int64_t before = g_allocations;
  op();
  return g_allocations - before;
}

TEST(CpuOps, AllocateNothingInside) {
  constexpr int64_t kRows = 9, kHidden = 256, kInner = 128;
  constexpr int32_t kHeads = 4, kDim = 64, kWindow = 16, kTopk = 24, kExperts = 8, kK = 2, kEntries = 200;
  Data data(1);
  const std::unique_ptr<Ops> ops = make_cpu_ops({"", 2});
  OpsLimits limits;
  limits.max_rows = kRows;
  limits.max_linear_in = kHidden;
  limits.hidden = kHidden;
  limits.expert_inner = kInner;
  limits.max_experts = kExperts;
  limits.max_topk_experts = kK;
  limits.heads = limits.index_heads = kHeads;
  limits.head_dim = limits.index_dim = kDim;
  limits.list_length = kWindow + kTopk;
  limits.max_visible = kEntries;
  ops->reserve(limits);

  const std::vector<bf16> x = data.activations(kRows * kHidden);
  std::vector<bf16> y(static_cast<size_t>(kRows * kHidden));
  const WeightHandle fp8 = ops->prepare(WeightKind::kFp8, data.fp8(kHidden, kHidden));
  const WeightHandle plain = ops->prepare(WeightKind::kBf16, data.bf16_matrix(kHidden, kHidden, 0.1f));
  const WeightHandle vector = ops->prepare(WeightKind::kVector, data.vector(1, kHidden, 1, 0.1f));
  EXPECT_EQ(0, allocations_of([&] { ops->quantized_linear({fp8.get(), x.data(), kRows, y.data(), nullptr}); }));
  EXPECT_EQ(0, allocations_of([&] { ops->linear({plain.get(), x.data(), kRows, y.data(), nullptr}); }));
  EXPECT_EQ(0, allocations_of([&] { ops->rms_norm({x.data(), vector.get(), 1e-20f, kRows, kHidden, y.data()}); }));

  std::vector<ExpertViews> routed;
  for (int32_t e = 0; e < kExperts; ++e) {
    routed.push_back({data.fp4(kInner, kHidden), data.fp4(kInner, kHidden), data.fp4(kHidden, kInner)});
  }
  const WeightHandle experts =
      ops->prepare_experts(routed, {data.fp8(kInner, kHidden), data.fp8(kInner, kHidden), data.fp8(kHidden, kInner)});
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kRows * kK; ++i) ids.push_back(i % kExperts);
  const std::vector<float> weights(ids.size(), 0.5f);
  EXPECT_EQ(0, allocations_of([&] {
              ops->experts({experts.get(), x.data(), ids.data(), weights.data(), kRows, kK, 10, y.data()});
            }));

  RequestRows all;
  all.add(0, kEntries - kRows, kRows);
  const PagedPlane main(data, RowFormat::kFp4Main, RowFormat::kFp4Main, kDim, 16, {kEntries}, 1.0f);
  const PagedPlane keys(data, RowFormat::kFp4Index, RowFormat::kFp4Index, kDim, 16, {kEntries}, 1.0f);
  std::vector<int32_t> chosen;
  for (int32_t r = 0; r < kRows; ++r) chosen.push_back(r);
  const ChosenRows on_main(all, chosen, &main), on_keys(all, chosen, &keys);
  std::vector<int32_t> selected(static_cast<size_t>(kRows * kTopk));
  IndexSelectArgs select;
  select.rows = on_keys.rows;
  select.query = x.data();
  select.head_weights = x.data();
  select.heads = kHeads;
  select.keys = keys.rows();
  select.topk = kTopk;
  select.selected = selected.data();
  EXPECT_EQ(0, allocations_of([&] { ops->index_select(select); }));

  AttendArgs attend;
  attend.rows = on_main.rows;
  attend.query = x.data();
  attend.ring.dim = kDim;
  attend.ring.ring_rows = kWindow;
  attend.ring.row_stride = 2 * kDim;
  attend.ring.slot_stride = kWindow * attend.ring.row_stride;
  const std::vector<bf16> window = data.activations((kWindow + kRows) * kDim);
  std::vector<bf16> ring = window;
  attend.ring.base = reinterpret_cast<std::byte*>(ring.data());
  attend.encoded = reinterpret_cast<const std::byte*>(window.data() + kWindow * kDim);
  attend.window = kWindow;
  attend.main = main.rows();
  attend.selected = selected.data();
  attend.topk = kTopk;
  const WeightHandle sink = ops->prepare(WeightKind::kVector, data.vector(1, kHeads, 0, 1));
  attend.sink = sink.get();
  attend.heads = kHeads;
  attend.dim = kDim;
  attend.out = y.data();
  EXPECT_EQ(0, allocations_of([&] { ops->attend(attend); }));
}

}  // namespace
}  // namespace folio

#endif  // FOLIO_OWN_ALLOCATOR
