// The PAGE pool: reference-counted pages over one Buffer, with the contents of released pages kept for as long as
// nobody needs the room (spec runtime 3.6).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/geometry.h"
#include "tensor/buffer.h"

namespace folio {

// A page is in one of four states:
//
//   vacant  nobody refers to it and its bytes mean nothing
//   cached  nobody refers to it, but its content is published (in the prefix index) and can be claimed
//   used    the page tables of one or more requests refer to it; published or not
//   unit    a piece of a state image; it belongs to one owner and goes back with all the owner's units at once
//
// Nothing here looks at bytes. Misuse (an id out of range, a release too many, a unit released alone) is a bug of the
// caller and stops the process. Not thread-safe: the engine's thread alone uses it.
class PagePool {
 public:
  using UnitOwner = int64_t;
  // Called for a cached page that is about to be handed out, when it has ceased to be published. May release other
  // pages or units; must not allocate.
  using EvictionHook = std::function<void(int32_t page)>;
  // Called for a page whose bytes have ceased to mean anything: it became vacant, or it was a cached one that is handed
  // out. Same rules.
  using DiscardHook = std::function<void(int32_t page)>;

  struct Stats {
    int64_t allocated = 0;  // pages handed out, units included
    int64_t evicted = 0;    // of these, cached ones that lost their content
    int64_t revived = 0;    // cached pages that were claimed
    int32_t most_used = 0;  // largest in_use() so far
  };

  PagePool(Device& device, const Geometry& geometry, int32_t pages);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  std::byte* data() const { return memory_.data(); }
  int64_t bytes() const { return memory_.bytes(); }

  int32_t capacity() const { return static_cast<int32_t>(pages_.size()); }
  int32_t vacant() const { return static_cast<int32_t>(vacant_.size()); }
  int32_t cached() const { return cached_; }
  // Pages that allocate() can hand out.
  int32_t available() const { return vacant() + cached_; }
  int32_t in_use() const { return capacity() - available(); }
  // Those in use that are pieces of images.
  int32_t units() const { return units_; }
  const Stats& stats() const { return stats_; }

  // A page with one reference: a vacant one if there is one, else the cached page that was released longest ago, after
  // the eviction hook has been told; nothing if none is available. Vacant pages come lowest id first after
  // construction, and the one returned last first later: memory that is warm is used again, and a test that takes all
  // pages and returns them in some order thereby chooses the order in which they are handed out.
  std::optional<int32_t> allocate();
  // Adds a reference to a used page, or revives a cached one.
  void claim(int32_t page);
  // Takes a reference away. At none the page is cached if it is published, else vacant. A request releases its pages
  // from the last to the first, so that the end of a prefix is evicted before its beginning.
  void release(int32_t page);
  // References to a used page; 0 for a vacant or cached one.
  int32_t references(int32_t page) const;
  // Names what a used or cached page holds: another number each time that the page is handed out, 0 when it is vacant.
  // Who remembers page and number can tell later whether the page still holds the same.
  uint64_t content(int32_t page) const;

  // Whether `fresh` pages can be allocated after all of `claimed` have been claimed, without evicting any of those.
  bool covers(std::span<const int32_t> claimed, int64_t fresh) const;

  // For the prefix index. Only a used page can become published; a cached page that ceases to be becomes vacant.
  void publish(int32_t page);
  void unpublish(int32_t page);
  bool published(int32_t page) const;
  // Makes a cached page the last to be evicted; does nothing to a used one.
  void touch(int32_t page);
  void set_eviction_hook(EvictionHook hook) { on_evict_ = std::move(hook); }
  // For tests that overwrite such pages.
  void set_discard_hook(DiscardHook hook) { on_discard_ = std::move(hook); }

  // `count` pages as the units of `owner`, which has none yet; nothing, and nothing evicted, if fewer are available.
  std::optional<std::vector<int32_t>> allocate_units(UnitOwner owner, int32_t count);
  // Returns all units of `owner`, in any order, as vacant pages.
  void release_units(UnitOwner owner, std::span<const int32_t> units);

  // Makes every page vacant, as after construction, and tells no hook: whoever had pages has them no more.
  void reset();

 private:
  enum class State : uint8_t { kVacant, kCached, kUsed, kUnit };
  struct Page {
    State state = State::kVacant;
    bool published = false;
    int32_t references = 0;
    int32_t older = -1;  // neighbours among the cached pages
    int32_t newer = -1;
    UnitOwner owner = 0;   // of a unit
    uint64_t content = 0;  // not of a vacant page
  };

  Page& at(int32_t page);
  const Page& at(int32_t page) const;
  int32_t take(State state);  // an available page, which gets the state
  void make_vacant(int32_t page);
  void append_cached(int32_t page);
  void remove_cached(int32_t page);

  std::vector<Page> pages_;
  std::vector<int32_t> vacant_;
  std::unordered_map<UnitOwner, int32_t> unit_counts_;
  uint64_t contents_ = 0;  // given out
  int32_t cached_ = 0;
  int32_t units_ = 0;
  int32_t oldest_ = -1;
  int32_t newest_ = -1;
  EvictionHook on_evict_;
  DiscardHook on_discard_;
  Stats stats_;
  Buffer memory_;
};

}  // namespace folio
