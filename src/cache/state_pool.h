// The STATE pool: one fixed-size entry per running request, as a plain allocator over one Buffer.
#pragma once

#include "cache/geometry.h"
#include "cache/id_pool.h"
#include "tensor/buffer.h"

namespace folio {

class StatePool {
 public:
  StatePool(Device& device, const Geometry& geometry, int32_t slots)
      : ids_(slots), memory_(device, slots * geometry.state_bytes()) {}

  IdPool& ids() { return ids_; }
  int32_t capacity() const { return ids_.capacity(); }
  std::byte* data() const { return memory_.data(); }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  IdPool ids_;
  Buffer memory_;
};

}  // namespace folio
