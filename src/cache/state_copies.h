// The byte copies of request state: between slots, from slots into images, from images into slots (spec runtime 2.9).
// They read the layout through Geometry's ranges and nothing else.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "cache/copy_plan.h"
#include "cache/images.h"
#include "cache/state_pool.h"

namespace folio {

// Collects the copies that run before the next step. They have the effect of running one after the other in the order
// of the calls, and all of them before the step's rows: so a slot can be stored and then given to another request, and
// units can be freed and filled again, within one step. What needs no order shares a stage of the plan.
//
// Until complete(), an image that is being written is kCopying, and one that is being read is pinned.
class StateCopies {
 public:
  struct Move {
    int32_t source = 0;
    int32_t destination = 0;
  };

  // All must outlive this object.
  StateCopies(Device& device, const Geometry& geometry, PagePool& pages, StatePool& states, ImageStore& images);
  StateCopies(const StateCopies&) = delete;
  StateCopies& operator=(const StateCopies&) = delete;

  // Copies whole STATE entries, all sources as they are before the first destination is written: {a to b, b to a}
  // swaps. Destinations are distinct.
  void move_slots(std::span<const Move> moves);
  // The same for whole pages, but no destination may be a source.
  void copy_pages(std::span<const Move> moves);

  // Queues the write of `image`, which begin_store() or begin_private() has just reserved, from `slot`.
  void store(ImageId image, int32_t slot);
  // Queues the read of a ready image into `slot` and pins it. A boundary image leaves the slot's pending compressor
  // rows as they are. A private image is restored by its own request alone, and is used up: nobody finds it any more,
  // and when the restore completes it is gone; the request takes over its kept pages (ImageStore::take_kept_pages)
  // before. Throws Error(kInvalidArgument) for an image of another layout or size, or with repeated units
  // (check_image).
  void restore(ImageId image, int32_t slot, RequestId request);
  // For tests: fills a page or a slot that nobody needs any more with bytes that are NaN in every format. Queued like a
  // copy, so that what was queued before still reads what was there.
  void poison_page(int32_t page);
  void poison_slot(int32_t slot);
  // The request in `slot` is gone: takes back its restores that have not been drained. Stores from the slot stay: what
  // they write is right whatever becomes of the request.
  void forget_slot(int32_t slot);

  bool empty() const { return queued_.empty(); }
  // Adds what is queued to `plan`, behind what is there.
  void drain(CopyPlan& plan);
  // The step that carries the oldest drained batch has been enqueued (or, for a caller that wants it later, has run):
  // its stores are ready, its restores unpinned. One call for each drain(), in order.
  void complete();

 private:
  enum class Kind : uint8_t { kMoves, kPages, kStore, kRestore, kPoison };
  struct Copy {
    Kind kind;
    std::vector<Move> moves;  // of kMoves, kPages
    ImageId image = -1;       // of kStore, kRestore
    int32_t slot = -1;        // of kStore, kRestore, kPoison
    int32_t page = -1;        // of kPoison, when it is no slot
  };
  void poison(Copy copy);
  void check_slot(int32_t slot) const;
  void plan_moves(std::span<const Move> moves, CopyPlan& plan) const;
  void plan_image(const Copy& copy, CopyPlan& plan) const;

  const Geometry& geometry_;
  PagePool& pages_;
  StatePool& states_;
  ImageStore& images_;
  Device& device_;
  Buffer scratch_;  // one STATE entry, for moves in a circle
  Buffer poison_;   // as large as a page and a STATE entry, once it is needed
  std::vector<Copy> queued_;
  std::deque<std::vector<Copy>> drained_;  // stores and restores of each drained batch
};

}  // namespace folio
