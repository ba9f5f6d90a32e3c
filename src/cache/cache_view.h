// The addresses of all request memory as the model's ops take them: what a step reads and writes across steps.
#pragma once

#include <vector>

#include "cache/geometry.h"
#include "cache/page_pool.h"
#include "cache/state_pool.h"

namespace folio {

struct CacheView {
  struct Owner {
    PagedRows main;
    PagedRows index;
    PendingRows pending;  // only owners of ratio 2
  };
  std::vector<Owner> owners;     // in the order of GeometryInputs::owners
  std::vector<RingRows> window;  // per window layer
  std::byte* cursors = nullptr;  // SlotCursor of slot 0
  int64_t cursor_stride = 0;

  CacheView() = default;
  CacheView(const Geometry& geometry, const PagePool& pages, const StatePool& states) {
    for (size_t i = 0; i < geometry.inputs().owners.size(); ++i) {
      Owner owner{
          .main = geometry.main_rows(pages.data(), i), .index = geometry.index_rows(pages.data(), i), .pending = {}};
      if (geometry.inputs().owners[i].ratio == 2) owner.pending = geometry.pending_rows(states.data(), i);
      owners.push_back(owner);
    }
    for (int32_t layer = 0; layer < geometry.inputs().window_layers; ++layer) {
      window.push_back(geometry.window_rows(states.data(), layer));
    }
    cursors = geometry.cursors(states.data());
    cursor_stride = geometry.state_bytes();
  }
};

}  // namespace folio
