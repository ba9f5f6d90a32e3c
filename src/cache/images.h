// Images of STATE entries, kept in units of the page pool: which there are, and which may be read, written or given up
// (spec runtime 2.9, 3.7). The bytes are moved by cache/state_copies.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/block_hash.h"
#include "cache/page_pool.h"

namespace folio {

enum class ImageKind : uint8_t {
  kBoundary,  // window rings and cursor at a PAGE boundary: for every request with that prefix
  kPrivate,   // a whole STATE entry at any position, pending compressor rows included: for its own request alone
};

// What an image is made of, wherever it is kept.
struct StateImage {
  std::string identity;  // Geometry::identity() of the layout that wrote it
  ImageKind kind = ImageKind::kBoundary;
  int64_t bytes = 0;
  std::vector<int32_t> units;  // pages, in the order of the bytes; any ids
};

// Bytes of an image, and the units that hold them.
int64_t image_bytes(const Geometry& geometry, ImageKind kind);
int32_t image_units(const Geometry& geometry, ImageKind kind);
// Throws Error(kInvalidArgument) for an image of another layout, of another size, or with units that are missing,
// repeated or not pages of a pool of `pages` pages.
void check_image(const Geometry& geometry, const StateImage& image, int32_t pages);

using ImageId = int64_t;  // never used twice
using RequestId = int64_t;

enum class ImageState : uint8_t {
  kCopying,   // its bytes are still to be written: cannot be restored or evicted
  kReady,     // can be restored; can be evicted while nobody has pinned it
  kEvicting,  // cannot be found any more; its units go back when its last reader or writer is done
};

// The name of a boundary image: the prefix whose state it is. `exact`: every window ring holds the rows of a run
// without decoder replay, so that any request may resume from it; otherwise only the encoder's rings do.
struct ImageKey {
  BlockHash prefix;
  bool exact = true;
};

class ImageStore {
 public:
  struct Stats {
    int64_t kept = 0;        // images that became ready
    int64_t duplicates = 0;  // stores refused because there is such an image
    int64_t refused = 0;     // stores refused for want of units
    int64_t restored = 0;    // pins taken
    int64_t evicted = 0;     // images given up for their units
    int64_t orphaned = 0;    // images given up because the page of their prefix was evicted
  };

  // Both must outlive the store; the caller connects PrefixIndex's eviction hook to unindex().
  ImageStore(const Geometry& geometry, PagePool& pages);
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  // Reserves units for a new image, in state kCopying. Refuses (nothing) if an image that serves `key` as well is there
  // or being written, or if the units cannot be had; only when it is sure not to refuse does it evict images (least
  // recently used first) and let the pool evict cached pages. An exact image takes the place of one that is not.
  std::optional<ImageId> begin_store(const ImageKey& key);
  // The same for the whole STATE entry of `request`, which has no image yet. The image takes over the caller's
  // references to `kept`, pages of the request that the prefix index does not hold, and releases them if it is given
  // up.
  std::optional<ImageId> begin_private(RequestId request, std::vector<int32_t> kept = {});
  // The copy that writes the image has been enqueued, and whatever reads its units comes behind it.
  void complete_store(ImageId id);

  // A ready image to resume from, or nothing: one of `prefix` that is exact, or any if `exact` is false; the private
  // one of a request. Changes nothing.
  std::optional<ImageId> find(const BlockHash& prefix, bool exact) const;
  std::optional<ImageId> find_private(RequestId request) const;
  // Pages that a private image keeps, and their references, which pass to the caller.
  const std::vector<int32_t>& kept_pages(ImageId id) const { return at(id).kept; }
  std::vector<int32_t> take_kept_pages(ImageId id);

  // Keeps a ready image from being given up while a restore is under way; the last unpin makes it the most recently
  // used.
  void pin(ImageId id);
  void unpin(ImageId id);

  // Gives up the least recently used image that is ready, not pinned and not `spared`; false if there is none.
  bool evict_one(std::optional<ImageId> spared = std::nullopt);
  // Pages that evict_one() makes available, called until it returns false: units, and kept pages that nobody else uses.
  // Of a page that two images keep, none.
  int64_t reclaimable(std::optional<ImageId> spared = std::nullopt) const;
  // The page of this prefix is gone: its images cannot be found any more.
  void unindex(const BlockHash& prefix);
  // Makes an image impossible to find. Its units go back at once, or when its last reader or writer is done.
  void drop(ImageId id);
  // Drops every boundary image.
  void clear();

  const StateImage& image(ImageId id) const { return at(id).image; }
  ImageState state(ImageId id) const { return at(id).state; }
  int32_t pins(ImageId id) const { return at(id).pins; }
  // The request of a private image; nothing for a boundary image.
  std::optional<RequestId> owner(ImageId id) const { return at(id).request; }
  bool contains(ImageId id) const { return records_.contains(id); }
  int64_t size() const { return static_cast<int64_t>(records_.size()); }
  const Stats& stats() const { return stats_; }
  const Geometry& geometry() const { return geometry_; }

 private:
  struct Record {
    StateImage image;
    ImageKey key;                      // of a boundary image
    std::optional<RequestId> request;  // of a private one
    std::vector<int32_t> kept;
    ImageState state = ImageState::kCopying;
    bool writing = true;
    int32_t pins = 0;
    std::optional<std::list<ImageId>::iterator> evictable;  // its place in evictable_
  };
  struct Named {
    std::optional<ImageId> exact;
    std::optional<ImageId> encoder;
  };

  Record& at(ImageId id);
  const Record& at(ImageId id) const;
  // Units for an image of `kind`, or nothing.
  std::optional<ImageId> reserve(ImageKind kind);
  void make_evictable(Record& record, ImageId id);
  void keep(Record& record);     // not evictable any more
  void end_if_idle(ImageId id);  // of an image that is kEvicting

  const Geometry& geometry_;
  PagePool& pages_;
  ImageId next_ = 0;
  std::unordered_map<ImageId, Record> records_;
  std::unordered_map<BlockHash, Named> by_prefix_;
  std::unordered_map<RequestId, ImageId> by_request_;
  std::list<ImageId> evictable_;  // ready and not pinned, least recently used first
  Stats stats_;
};

}  // namespace folio
