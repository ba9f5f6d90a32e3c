// Wall-clock time for measurements.
#pragma once

#include <chrono>

namespace folio {

// Seconds on a monotonic clock; only differences mean something.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace folio
