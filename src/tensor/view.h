// Non-owning, contiguous, row-major view of typed memory.
#pragma once

#include <cstddef>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace folio {

struct TensorView {
  const std::byte* data = nullptr;  // memory of the device that the owner allocated it on
  DType dtype = DType::kF32;
  Shape shape;

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

}  // namespace folio
