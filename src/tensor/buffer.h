// Owned device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensor/device.h"

namespace folio {

// Allocates on construction, frees on destruction. The device must outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, int64_t bytes) : device_(&device), data_(device.allocate(bytes)), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (device_ != nullptr) device_->free(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace folio
