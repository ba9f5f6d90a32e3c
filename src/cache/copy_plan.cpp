#include "cache/copy_plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace folio {

void CopyPlan::begin_stage() { stage_open_ = false; }

void CopyPlan::add(const std::byte* source, std::byte* destination, int64_t bytes) {
  ranges_.push_back({source, destination, bytes});
  if (!stage_open_) stage_ends_.push_back(0);
  stage_open_ = true;
  stage_ends_.back() = static_cast<int32_t>(ranges_.size());
}

void CopyPlan::stream(const std::byte* source, std::span<const MemoryRange> from, std::byte* destination,
                      std::span<const MemoryRange> to) {
  size_t target = 0;
  int64_t filled = 0;  // bytes of to[target]
  for (const MemoryRange& range : from) {
    for (int64_t done = 0; done < range.bytes;) {
      FOLIO_CHECK(target < to.size(), "the destination is too small");
      const int64_t bytes = std::min(range.bytes - done, to[target].bytes - filled);
      if (bytes > 0) add(source + range.offset + done, destination + to[target].offset + filled, bytes);
      done += bytes;
      filled += bytes;
      if (filled == to[target].bytes) {
        ++target;
        filled = 0;
      }
    }
  }
}

void CopyPlan::append(const CopyPlan& other) {
  size_t next = 0;
  for (const int32_t end : other.stage_ends_) {
    begin_stage();
    for (; next < static_cast<size_t>(end); ++next) {
      const CopyRange& range = other.ranges_[next];
      add(range.source, range.destination, range.bytes);
    }
  }
}

void CopyPlan::clear() {
  ranges_.clear();
  stage_ends_.clear();
  stage_open_ = false;
}

int64_t CopyPlan::bytes() const {
  return std::accumulate(ranges_.begin(), ranges_.end(), int64_t{0},
                         [](int64_t sum, const CopyRange& range) { return sum + range.bytes; });
}

void CopyPlan::run(Ops& ops) const {
  int32_t first = 0;
  for (const int32_t end : stage_ends_) {
    ops.copy_ranges({.ranges = ranges_.data() + first, .count = end - first});
    first = end;
  }
}

}  // namespace folio
