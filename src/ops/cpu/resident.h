// Page faults of mapped weights, taken at load instead of in the first steps that meet them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace folio::cpu {

// Maps those pages of `data` that are in memory already (the page cache of a mapped file). Reads nothing from disk:
// pages that are not there stay as they are. 20 GB/s or so.
void map_resident(const std::byte* data, int64_t bytes);

}  // namespace folio::cpu
