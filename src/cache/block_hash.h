// The names of full blocks of a request's history: a chain of hashes over token ids and image contents.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace folio {

// 128 bits of XXH3: the hash of a block and, through its parent, of everything before it.
struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const BlockHash&) const = default;
};

// Where a chain begins. Blocks of different chains never meet, whatever their tokens.
enum class Chain : uint8_t {
  kExact,       // the content is that of a run without encoder replay
  kDownstream,  // computed behind a prefix hit that was taken by encoder replay: close to it, not equal
};
inline constexpr int kNumChains = 2;

// Positions first .. end-1 of a request hold an image; `content` is a hash of its pixels. Its placeholder ids are the
// same for every image, so a block that touches it is named by the content too.
struct ImageSpan {
  int64_t first = 0;
  int64_t end = 0;
  uint64_t content = 0;
};

// The parent of a chain's first block.
BlockHash chain_root(Chain chain);

// What the images (ascending, disjoint) contribute to the block of positions begin .. end-1: contents and where they
// lie. 0 if none touches it.
uint64_t image_seed(std::span<const ImageSpan> images, int64_t begin, int64_t end);

// What a salt contributes to every block of a request: requests share pages only with those of an equal salt. 0 for "",
// never otherwise.
uint64_t salt_seed(std::string_view salt);

BlockHash block_hash(const BlockHash& parent, std::span<const int32_t> tokens, uint64_t seed);
using BlockHashFunction = BlockHash (*)(const BlockHash& parent, std::span<const int32_t> tokens, uint64_t seed);

// The hashes of one request's full blocks in both chains, extended as its tokens become known.
class BlockHashes {
 public:
  // `function` is replaced only by tests of what happens when hashes collide.
  explicit BlockHashes(int32_t block_size, std::vector<ImageSpan> images = {}, BlockHashFunction function = block_hash,
                       uint64_t salt = 0);

  // `tokens`: all tokens of the request so far, from the first. Hashes the full blocks that are not hashed yet; what
  // was hashed must not have changed.
  void extend(std::span<const int32_t> tokens);

  int32_t block_size() const { return block_size_; }
  // Full blocks hashed so far.
  int64_t size() const { return static_cast<int64_t>(seeds_.size()); }
  const BlockHash& hash(Chain chain, int64_t block) const;
  // The hash of the block before, or the chain's root.
  const BlockHash& parent(Chain chain, int64_t block) const;
  uint64_t seed(int64_t block) const { return seeds_[static_cast<size_t>(block)]; }
  // The hash that names the first `tokens` tokens, a positive multiple of the block size.
  const BlockHash& prefix(Chain chain, int64_t tokens) const { return hash(chain, tokens / block_size_ - 1); }

 private:
  int32_t block_size_;
  std::vector<ImageSpan> images_;
  BlockHashFunction function_;
  uint64_t salt_;                              // of salt_seed()
  std::vector<BlockHash> chains_[kNumChains];  // the root, then one hash per block
  std::vector<uint64_t> seeds_;
};

}  // namespace folio

template <>
struct std::hash<folio::BlockHash> {
  size_t operator()(const folio::BlockHash& block) const noexcept { return static_cast<size_t>(block.low); }
};
