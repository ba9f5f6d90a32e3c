#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "ops/ops.h"

namespace folio {
namespace {

// Random disjoint ranges, on every backend of this machine: all bytes arrive, and no other byte changes.
TEST(CopyRanges, CopiesExactlyTheRanges) {
  for (const char* isa : {"ref", "scalar", "avx2", "avx512bf16"}) {
    std::unique_ptr<Ops> ops;
    try {
      ops = std::string(isa) == "ref" ? make_reference_ops() : make_cpu_ops({.isa = isa, .threads = 2});
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUnsupported);
      continue;
    }
    std::mt19937_64 random(1);
    std::vector<std::byte> source(200000), destination(source.size());
    for (auto& byte : source) byte = static_cast<std::byte>(random());
    std::vector<std::byte> expected = destination;
    std::vector<CopyRange> ranges;
    for (size_t at = 0; at < source.size();) {
      const size_t bytes = std::min<size_t>(random() % 3 == 0 ? random() % 40000 : random() % 100, source.size() - at);
      if (random() % 2 == 0) {
        const size_t from = random() % (source.size() - bytes + 1);
        ranges.push_back({source.data() + from, destination.data() + at, static_cast<int64_t>(bytes)});
        std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), bytes,
                    expected.begin() + static_cast<ptrdiff_t>(at));
      }
      at += bytes + 1;
    }
    ops->copy_ranges({.ranges = ranges.data(), .count = static_cast<int32_t>(ranges.size())});
    EXPECT_EQ(destination, expected) << isa;
    ops->copy_ranges({.ranges = nullptr, .count = 0});
  }
}

}  // namespace
}  // namespace folio
