// A plain allocator of small integers: the free list behind the page pool and the state pool.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"

namespace folio {

class IdPool {
 public:
  // Ids 0 .. count-1, all free; the lowest free id is handed out first after construction, the last returned first
  // later.
  explicit IdPool(int32_t count) : used_(static_cast<size_t>(count)) { reset(); }

  int32_t capacity() const { return static_cast<int32_t>(used_.size()); }
  int32_t available() const { return static_cast<int32_t>(free_.size()); }

  // A free id, or nothing.
  std::optional<int32_t> allocate() {
    if (free_.empty()) return std::nullopt;
    const int32_t id = free_.back();
    free_.pop_back();
    used_[static_cast<size_t>(id)] = true;
    return id;
  }
  void release(int32_t id) {
    FOLIO_CHECK(id >= 0 && id < capacity() && used_[static_cast<size_t>(id)], "id ", id);
    used_[static_cast<size_t>(id)] = false;
    free_.push_back(id);
  }
  // As after construction: whoever had ids has them no more.
  void reset() {
    used_.assign(used_.size(), false);
    free_.clear();
    for (int32_t id = capacity() - 1; id >= 0; --id) free_.push_back(id);
  }

 private:
  std::vector<int32_t> free_;
  std::vector<bool> used_;
};

}  // namespace folio
