// The memory of all requests: the PAGE pool and the STATE pool, as plain allocators over one Buffer each.
#pragma once

#include "cache/geometry.h"
#include "cache/id_pool.h"
#include "tensor/buffer.h"

namespace folio {

class PagePool {
 public:
  PagePool(Device& device, const Geometry& geometry, int32_t pages)
      : ids_(pages), memory_(device, pages * geometry.page_bytes()) {}

  IdPool& ids() { return ids_; }
  std::byte* data() const { return memory_.data(); }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  IdPool ids_;
  Buffer memory_;
};

class StatePool {
 public:
  StatePool(Device& device, const Geometry& geometry, int32_t slots)
      : ids_(slots), memory_(device, slots * geometry.state_bytes()) {}

  IdPool& ids() { return ids_; }
  std::byte* data() const { return memory_.data(); }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  IdPool ids_;
  Buffer memory_;
};

}  // namespace folio
