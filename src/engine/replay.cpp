#include "engine/replay.h"

#include <algorithm>

namespace folio {

int64_t decoder_tail_start(int64_t prompt_length, int64_t window) {
  return std::max<int64_t>(0, prompt_length - window);
}

int64_t chunk_rows(int64_t begin, int64_t due, const ChunkLimits& limits) {
  int64_t rows = std::min(due, limits.budget);
  // A threshold below the tail would never let a prefill finish.
  if (limits.threshold > 0) rows = std::min(rows, std::max(limits.threshold, limits.tail));
  if (rows >= due) return due;
  rows = std::min(rows, due - limits.tail);
  if (rows <= 0) return 0;
  const int64_t end = (begin + rows) / limits.block * limits.block;
  return end > begin ? end - begin : rows;
}

}  // namespace folio
