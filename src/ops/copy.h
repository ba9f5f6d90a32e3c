// Copies of byte ranges inside device memory: state images, forks of requests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace folio {

struct CopyRange {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  int64_t bytes = 0;
};

// Copies every range, in any order or all at once: a destination overlaps no other range of the same call, neither a
// source nor a destination. What must happen in order takes one call after the other (cache/copy_plan.h).
struct CopyRangesArgs {
  const CopyRange* ranges = nullptr;  // [count], host memory that stays as it is until the copies have run
  int32_t count = 0;
};

}  // namespace folio
