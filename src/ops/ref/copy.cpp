#include <cstring>

#include "ops/ref/reference_ops.h"

namespace folio {

void ReferenceOps::copy_ranges(const CopyRangesArgs& args) {
  for (int32_t i = 0; i < args.count; ++i) {
    const CopyRange& range = args.ranges[i];
    std::memcpy(range.destination, range.source, static_cast<size_t>(range.bytes));
  }
}

}  // namespace folio
