// Bump allocation out of one Buffer: the activations and scratch of a step, sized at start, at fixed addresses for
// life.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "tensor/buffer.h"

namespace folio {

// Two uses with one code path: an arena without memory only adds up sizes (`used`), one with memory hands it out. So
// the function that lays out a workspace is run once to measure and once to place.
class Arena {
 public:
  static constexpr int64_t kAlignment = 64;

  // Measures: take() returns null pointers.
  Arena() = default;
  // Places into `buffer`, which must outlive what was taken.
  explicit Arena(Buffer& buffer) : base_(buffer.data()), capacity_(buffer.bytes()) {}

  // `count` elements of T, aligned to kAlignment.
  template <typename T>
  T* take(int64_t count) {
    const int64_t start = used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    if (base_ == nullptr) return nullptr;
    FOLIO_CHECK(used_ <= capacity_, used_, " of ", capacity_, " bytes");
    return reinterpret_cast<T*>(base_ + start);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
};

}  // namespace folio
