#include "cache/block_hash.h"

#include <xxhash.h>

#include <algorithm>

#include "base/error.h"

namespace folio {
namespace {

BlockHash digest(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

}  // namespace

BlockHash chain_root(Chain chain) {
  constexpr std::string_view kNames[kNumChains] = {"folio prefix chain: exact", "folio prefix chain: downstream"};
  const std::string_view name = kNames[static_cast<size_t>(chain)];
  return digest(name.data(), name.size());
}

uint64_t image_seed(std::span<const ImageSpan> images, int64_t begin, int64_t end) {
  uint64_t seed = 0;
  for (const ImageSpan& image : images) {
    if (image.end <= begin || image.first >= end) continue;
    const uint64_t parts[] = {seed, image.content, static_cast<uint64_t>(image.first - begin),
                              static_cast<uint64_t>(image.end - begin)};
    seed = XXH3_64bits(parts, sizeof(parts)) | 1;  // not 0, that of a block without images
  }
  return seed;
}

uint64_t salt_seed(std::string_view salt) { return salt.empty() ? 0 : XXH3_64bits(salt.data(), salt.size()) | 1; }

BlockHash block_hash(const BlockHash& parent, std::span<const int32_t> tokens, uint64_t seed) {
  const BlockHash own = digest(tokens.data(), tokens.size_bytes());
  const uint64_t parts[] = {parent.low, parent.high, seed, own.low, own.high};
  return digest(parts, sizeof(parts));
}

BlockHashes::BlockHashes(int32_t block_size, std::vector<ImageSpan> images, BlockHashFunction function, uint64_t salt)
    : block_size_(block_size), images_(std::move(images)), function_(function), salt_(salt) {
  FOLIO_CHECK(block_size > 0);
  for (int chain = 0; chain < kNumChains; ++chain) chains_[chain].push_back(chain_root(static_cast<Chain>(chain)));
}

void BlockHashes::extend(std::span<const int32_t> tokens) {
  while ((size() + 1) * block_size_ <= std::ssize(tokens)) {
    const int64_t begin = size() * block_size_;
    const auto block = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(block_size_));
    uint64_t seed = image_seed(images_, begin, begin + block_size_);
    if (salt_ != 0) {
      const uint64_t parts[] = {salt_, seed};
      seed = XXH3_64bits(parts, sizeof(parts)) | 1;  // not 0, that of a block with neither
    }
    for (auto& chain : chains_) chain.push_back(function_(chain.back(), block, seed));
    seeds_.push_back(seed);
  }
}

const BlockHash& BlockHashes::hash(Chain chain, int64_t block) const {
  FOLIO_CHECK(block >= 0 && block < size(), "block ", block, " of ", size());
  return chains_[static_cast<size_t>(chain)][static_cast<size_t>(block) + 1];
}

const BlockHash& BlockHashes::parent(Chain chain, int64_t block) const {
  FOLIO_CHECK(block >= 0 && block <= size(), "block ", block, " of ", size());
  return chains_[static_cast<size_t>(chain)][static_cast<size_t>(block)];
}

}  // namespace folio
