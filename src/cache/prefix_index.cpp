#include "cache/prefix_index.h"

#include <algorithm>

#include "base/error.h"

namespace folio {

PrefixIndex::PrefixIndex(PagePool& pages, int32_t block_size)
    : pages_(pages),
      block_size_(block_size),
      entries_(static_cast<size_t>(pages.capacity())),
      tokens_(entries_.size() * static_cast<size_t>(block_size)) {
  pages_.set_eviction_hook([this](int32_t page) {
    ++stats_.evicted;
    forget(page);
  });
}

PrefixIndex::~PrefixIndex() { pages_.set_eviction_hook(nullptr); }

PrefixMatch PrefixIndex::match(const BlockHashes& hashes, std::span<const int32_t> tokens, bool exact) {
  PrefixMatch match;
  const int64_t blocks = tokens.empty() ? 0 : (std::ssize(tokens) - 1) / block_size_;
  FOLIO_CHECK(hashes.block_size() == block_size_ && hashes.size() >= blocks, hashes.size(), " hashes of ", blocks);
  Chain chain = Chain::kExact;
  for (int64_t block = 0; block < blocks; ++block) {
    auto page = find(hashes, tokens, chain, block);
    if (!page && !exact && chain == Chain::kExact) {
      chain = Chain::kDownstream;
      page = find(hashes, tokens, chain, block);
    }
    if (!page) break;
    match.pages.push_back(*page);
    match.hashes.push_back(hashes.hash(chain, block));
    if (chain == Chain::kExact) match.exact_blocks = block + 1;
  }
  match.tokens = std::ssize(match.pages) * block_size_;
  return match;
}

void PrefixIndex::record(int64_t tokens, const PrefixMatch& match, int64_t hit_tokens) {
  FOLIO_CHECK(hit_tokens <= match.tokens && match.tokens <= tokens);
  ++stats_.queries;
  stats_.queried_tokens += tokens;
  stats_.matched_tokens += match.tokens;
  stats_.hit_tokens += hit_tokens;
}

PrefixIndex::Published PrefixIndex::publish(const BlockHashes& hashes, std::span<const int32_t> tokens, Chain chain,
                                            int64_t block, int32_t page) {
  FOLIO_CHECK(hashes.block_size() == block_size_ && (block + 1) * block_size_ <= std::ssize(tokens), "block ", block,
              " is not full");
  const BlockHash& hash = hashes.hash(chain, block);
  if (by_hash_.contains(hash.low)) {
    const auto canonical = find(hashes, tokens, chain, block);
    if (!canonical) return {};
    FOLIO_CHECK(*canonical != page, "page ", page, " is published already");
    ++stats_.duplicates;
    pages_.touch(*canonical);
    return {.indexed = true, .canonical = *canonical};
  }
  pages_.publish(page);
  by_hash_[hash.low] = page;
  entries_[static_cast<size_t>(page)] = {
      .hash = hash, .parent = hashes.parent(chain, block), .seed = hashes.seed(block)};
  std::copy_n(tokens.begin() + block * block_size_, block_size_, tokens_.begin() + int64_t{page} * block_size_);
  ++stats_.published;
  return {.indexed = true, .canonical = page};
}

bool PrefixIndex::contains(const BlockHash& hash) const {
  const auto entry = by_hash_.find(hash.low);
  return entry != by_hash_.end() && entries_[static_cast<size_t>(entry->second)].hash == hash;
}

void PrefixIndex::evict(int32_t page) {
  pages_.unpublish(page);
  forget(page);
}

void PrefixIndex::clear() {
  std::vector<int32_t> published;
  published.reserve(by_hash_.size());
  for (const auto& [hash, page] : by_hash_) published.push_back(page);
  // In the order of pages, so that which page is handed out next does not depend on a hash table.
  std::sort(published.begin(), published.end(), std::greater<>());
  for (const int32_t page : published) evict(page);
}

std::span<const int32_t> PrefixIndex::stored_tokens(int32_t page) const {
  return std::span(tokens_).subspan(static_cast<size_t>(page) * static_cast<size_t>(block_size_),
                                    static_cast<size_t>(block_size_));
}

// Equal parents (of 128 bits), seeds and tokens make the content equal. What is compared is not the hash but what went
// into it, so a collision among the 64 bits of the key costs a hit and never gives a wrong page.
std::optional<int32_t> PrefixIndex::find(const BlockHashes& hashes, std::span<const int32_t> tokens, Chain chain,
                                         int64_t block) {
  const auto found = by_hash_.find(hashes.hash(chain, block).low);
  if (found == by_hash_.end()) return std::nullopt;
  const int32_t page = found->second;
  const Entry& entry = entries_[static_cast<size_t>(page)];
  const auto own = tokens.subspan(static_cast<size_t>(block * block_size_), static_cast<size_t>(block_size_));
  if (entry.parent == hashes.parent(chain, block) && entry.seed == hashes.seed(block) &&
      std::ranges::equal(stored_tokens(page), own)) {
    return page;
  }
  ++stats_.collisions;
  return std::nullopt;
}

void PrefixIndex::forget(int32_t page) {
  const BlockHash hash = entries_[static_cast<size_t>(page)].hash;
  by_hash_.erase(hash.low);
  if (on_evict_) on_evict_(hash);
}

}  // namespace folio
