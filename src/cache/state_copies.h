// The byte copies of request state that a step runs first: between slots, from slots into images, from images into
// slots (spec runtime 2.9). They read the layout through Geometry's ranges and nothing else.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "cache/copy_plan.h"
#include "cache/images.h"
#include "cache/state_pool.h"

namespace folio {

// Collects the copies of the next step. Their order is fixed, whatever the order of the calls: slots to slots, then
// stores, then restores, so that a store sees moved slots and a restore sees new images. Every piece of memory that a
// queued copy reads or writes is held (stores are kCopying, restores pin) until complete().
class StateCopies {
 public:
  // All must outlive this object.
  StateCopies(Device& device, const Geometry& geometry, PagePool& pages, StatePool& states, ImageStore& images);

  struct Move {
    int32_t source = 0;
    int32_t destination = 0;
  };
  // Copies whole STATE entries, as if all sources were read before any destination is written: {a to b, b to a} swaps.
  // Destinations are distinct. At most one call per step.
  void move_slots(std::span<const Move> moves);
  // Copies whole pages, all at once: no destination is a source or another destination.
  void copy_pages(std::span<const Move> moves);

  // Queues the write of `image`, which begin_store() or begin_private() has just reserved, from `slot`.
  void store(ImageId image, int32_t slot);
  // Queues the read of a ready image into `slot` and pins it. A private image is restored by its own request alone,
  // and is used up: when the restore completes it is gone, and its kept pages belong to the request again, which takes
  // them from ImageStore::kept_pages() now. A boundary image leaves the slot's pending compressor rows as they are.
  // Throws Error(kInvalidArgument) if the image is of another layout or size or repeats units (check_image).
  void restore(ImageId image, int32_t slot, RequestId request);
  // The request in `slot` is gone: takes back its queued stores and restores that drain() has not handed out. A private
  // image whose restore is taken back stays.
  void forget_slot(int32_t slot);

  // Moves what is queued into `plan` (behind what is there).
  void drain(CopyPlan& plan);
  // The step that carries the oldest drained batch has been enqueued (or, for callers that want it later, has run):
  // its stores are ready, its restores unpinned. One call for each drain(), in order.
  void complete();

 private:
  struct Store {
    ImageId image;
    int32_t slot;
  };
  struct Restore {
    ImageId image;
    int32_t slot;
    bool consume;
  };
  struct Batch {
    std::vector<Store> stores;
    std::vector<Restore> restores;
  };
  void check_slot(int32_t slot) const;
  std::vector<MemoryRange> slot_ranges(ImageKind kind, int32_t slot) const;
  std::vector<MemoryRange> unit_ranges(std::span<const int32_t> units) const;

  const Geometry& geometry_;
  PagePool& pages_;
  StatePool& states_;
  ImageStore& images_;
  Buffer scratch_;  // one STATE entry, for moves in a circle
  std::vector<Move> moves_;
  std::vector<Move> page_moves_;
  Batch queued_;
  std::deque<Batch> drained_;
};

}  // namespace folio
