#include "ops/cpu/resident.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace folio::cpu {
namespace {

#ifdef MADV_POPULATE_READ
constexpr int kPopulateRead = MADV_POPULATE_READ;
#else
constexpr int kPopulateRead = 22;  // Linux 5.14
#endif

constexpr uintptr_t kPages = 512;  // looked at together

}  // namespace

void map_resident(const std::byte* data, int64_t bytes) {
  if (bytes <= 0) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(data) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  for (uintptr_t at = start; at < end; at += kPages * page) {
    unsigned char present[kPages];
    const uintptr_t length = std::min(kPages * page, end - at);
    auto* address = reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr)
    if (::mincore(address, length, present) != 0) return;
    const unsigned char* first = present;
    const unsigned char* last = first + (length + page - 1) / page;
    const bool all = std::all_of(first, last, [](unsigned char bits) { return (bits & 1) != 0; });
    // Advice: kernels that do not know it leave the faults to the first use.
    if (all) ::madvise(address, length, kPopulateRead);
  }
}

}  // namespace folio::cpu
