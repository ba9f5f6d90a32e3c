// Which pages hold which prefixes: full, computed blocks by the hash of everything up to their end (spec runtime 3.5).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/block_hash.h"
#include "cache/page_pool.h"

namespace folio {

// The longest run of published blocks at the beginning of a request.
struct PrefixMatch {
  std::vector<int32_t> pages;     // one per block, not claimed yet
  std::vector<BlockHash> hashes;  // of the same blocks, in the chain that they were found in
  int64_t exact_blocks = 0;       // the first so many are of the exact chain, the others downstream
  int64_t tokens = 0;             // that the run covers
};

class PrefixIndex {
 public:
  // Told the hash of a block whose page lost its content, after it has left the index.
  using EvictionHook = std::function<void(const BlockHash& hash)>;

  struct Stats {
    int64_t queries = 0;         // requests admitted, by record()
    int64_t queried_tokens = 0;  // their tokens
    int64_t matched_tokens = 0;  // of these, in published blocks
    int64_t hit_tokens = 0;      // of these, not computed again; the rest was lost to state
    int64_t published = 0;       // blocks that entered the index
    int64_t duplicates = 0;      // blocks that were in it already, in another page
    int64_t collisions = 0;      // equal hashes of different content, met by match() or publish()
    int64_t evicted = 0;         // blocks that left it because their page was needed
  };

  // What became of a block at publish().
  struct Published {
    bool indexed = false;    // false: a collision; it is in no index
    int32_t canonical = -1;  // the page that holds the block for the index
  };

  // Becomes the eviction hook of `pages`, which must outlive it.
  PrefixIndex(PagePool& pages, int32_t block_size);
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;
  ~PrefixIndex();

  int32_t block_size() const { return block_size_; }
  int64_t size() const { return static_cast<int64_t>(by_hash_.size()); }
  const Stats& stats() const { return stats_; }

  // The longest run of blocks of the request `tokens` that are published, from the first, in the exact chain and from
  // where that ends on downstream of encoder replay, unless `exact` forbids it. Never the block of the last token: at
  // least one token has to run. Stored tokens, seeds and parents are compared, so two contents with one hash are a
  // miss. `hashes` must cover the full blocks of `tokens`. Claims nothing; what the caller does not claim before the
  // next allocation may be gone.
  PrefixMatch match(const BlockHashes& hashes, std::span<const int32_t> tokens, bool exact);
  // Counts an admitted request: `tokens` of it, the match and what was used of it.
  void record(int64_t tokens, const PrefixMatch& match, int64_t hit_tokens);

  // Enters block `block` of the request `tokens`, which the used page `page` holds completely computed, into a chain.
  // If the block is there already in another page, that page stays the canonical one (requests and images that found
  // it keep finding the same page, and becomes the last to be evicted), and `page` stays unpublished: it becomes vacant
  // when its request ends. The contents are equal by the row law. A page is published at most once.
  Published publish(const BlockHashes& hashes, std::span<const int32_t> tokens, Chain chain, int64_t block,
                    int32_t page);

  // Whether the block named `hash` is published.
  bool contains(const BlockHash& hash) const;
  // Drops a published page from the index; a cached page becomes vacant. The hook is told.
  void evict(int32_t page);
  // Drops all of them. Requests keep the pages that they use.
  void clear();
  void set_eviction_hook(EvictionHook hook) { on_evict_ = std::move(hook); }

 private:
  struct Entry {
    BlockHash hash;
    BlockHash parent;
    uint64_t seed = 0;
  };
  std::span<const int32_t> stored_tokens(int32_t page) const;
  std::optional<int32_t> find(const BlockHashes& hashes, std::span<const int32_t> tokens, Chain chain, int64_t block);
  void forget(int32_t page);

  PagePool& pages_;
  int32_t block_size_;
  std::unordered_map<uint64_t, int32_t> by_hash_;  // BlockHash::low to page
  std::vector<Entry> entries_;                     // [pages]
  std::vector<int32_t> tokens_;                    // [pages, block_size]
  EvictionHook on_evict_;
  Stats stats_;
};

}  // namespace folio
