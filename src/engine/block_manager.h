// Pages, slots and images of the running requests: who gets what, what is published for others, what is given back.
// The engine's thread alone uses it (src/engine/README.md).
#pragma once

#include <memory>

#include "cache/images.h"
#include "cache/prefix_index.h"
#include "cache/state_copies.h"
#include "cache/state_pool.h"
#include "cache/state_transfer.h"
#include "engine/engine_config.h"
#include "engine/request_state.h"

namespace folio {

// Told what becomes of requests and pages as it happens; for tests.
class BlockWatcher {
 public:
  virtual ~BlockWatcher() = default;
  // The request has what it resumes from: the plan is usage.plans.back(), its shared pages are all its pages so far.
  virtual void admitted(const RequestState& state) = 0;
  virtual void forked(const RequestState& parent, const RequestState& child) = 0;
  // Block `block` of the request can be found from now on, in `page`.
  virtual void published(const RequestState& state, int64_t block, int32_t page) = 0;
};

class BlockManager {
 public:
  struct Stats {              // of preempted choices, each time
    int64_t paused = 0;       // their state was kept
    int64_t resumed = 0;      // and they went on from it
    int64_t paused_lost = 0;  // it was given up, or pages before it were: they run again what they had run
  };

  // All must outlive it. Pages and slots are all free when it begins, and again when it ends. `history_tokens`: how far
  // back n-grams look.
  BlockManager(Device& device, const Geometry& geometry, PagePool& pages, StatePool& states, const EngineConfig& config,
               int32_t history_tokens);
  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;
  ~BlockManager();

  // Why a request can never run: nothing if it can.
  std::optional<std::string> refusal(const RequestState& state) const;

  // Gives a waiting request a slot and the pages of its prefix hit, and sets where it resumes: computed, window_floor,
  // write_from, restart, chain and usage. One that was paused goes on where it stood if its image and its pages are
  // still there. False if there is no slot or if its known tokens would not fit beside what is in use; what waits is
  // then as before, images may be gone.
  bool admit(RequestState& state);
  // Makes `child` a copy of `parent` as it is now: full pages shared, the last partial page and the STATE entry copied.
  // False, and nothing changed, without a slot or a page.
  bool fork(const RequestState& parent, RequestState& child);
  // Pages for positions up to `end`. False if the pool has not enough; pages that it got stay.
  bool grow(RequestState& state, int64_t end);

  // The end of a prefill chunk of the request, cut for an image.
  int64_t cut(const RequestState& state, int64_t begin, int64_t end);
  // The rows before `end` have run and their ids are known: publishes full pages.
  void computed(RequestState& state, int64_t end);
  // Between two steps: keeps an image of a running request's state where it is worth one. The copy runs behind the
  // steps that have been enqueued and before the next, so that it does not matter how many are in flight.
  void keep_image(RequestState& state);

  // Whether the state at a position of its decode, a block border, is worth an image: a step should end there.
  bool wants_image(const RequestState& state, int64_t position) const;

  // Takes everything away. What is published stays findable.
  void release(RequestState& state);
  // Like release, for a request that will be admitted again. If there is room for an image of its STATE beside its own
  // pages, it is paused: the image keeps the pages that are not published, and admit() goes on from there. Otherwise,
  // or if that is lost before, its known tokens run anew.
  void preempt(RequestState& state);

  // Copies to run before the next step, and the report that the step has been enqueued.
  StateCopies& copies() { return copies_; }

  int32_t slots() const { return states_.capacity(); }
  int32_t slots_used() const { return states_.capacity() - states_.ids().available(); }
  const PagePool& pages() const { return pages_; }
  const PrefixIndex& index() const { return index_; }
  const ImageStore& images() const { return images_; }
  const StateTransfer& transfer() const { return *transfer_; }
  const Stats& stats() const { return stats_; }
  // Every page and slot is free (cached pages count as free).
  bool idle() const;
  // Forgets all published prefixes and boundary images.
  void clear_cache();
  // Forgets the boundary images alone.
  void clear_images() { images_.clear(); }
  // Null: nobody. Must outlive the manager or be taken away.
  void watch(BlockWatcher* watcher) { watcher_ = watcher; }

 private:
  int32_t take_slot();  // one must be free
  int32_t take_page();
  void resume_at(RequestState& state, const Resume& resume);
  // Makes `fresh` pages available beside `claimed`, giving up images other than `spared` if that is enough.
  bool make_room(std::span<const int32_t> claimed, int64_t fresh, std::optional<ImageId> spared);
  std::optional<PausedRun> pause(RequestState& state);
  bool is_whole(const PausedRun& paused) const;
  bool go_on(RequestState& state, const PausedRun& paused);
  // Forgets what it has run.
  void begin_anew(RequestState& state);

  const Geometry& geometry_;
  EngineConfig config_;
  PagePool& pages_;
  StatePool& states_;
  PrefixIndex index_;
  ImageStore images_;
  StateCopies copies_;
  std::unique_ptr<StateTransfer> transfer_;
  BlockWatcher* watcher_ = nullptr;
  Stats stats_;
};

}  // namespace folio
