#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <set>

#include "cache/cache_test_util.h"

namespace folio {
namespace {

using test::hashes_of;
using test::kBlock;
using test::SmallCache;
using test::tokens_of;

// Runs a request from the start: a page for each full block, published in `chain`.
std::vector<int32_t> run_request(SmallCache& cache, const std::vector<int32_t>& tokens, Chain chain = Chain::kExact,
                                 const std::vector<ImageSpan>& images = {}) {
  const BlockHashes hashes = hashes_of(tokens, images);
  std::vector<int32_t> pages;
  for (int64_t block = 0; block < hashes.size(); ++block) {
    pages.push_back(cache.pages.allocate().value());
    cache.index.publish(hashes, tokens, chain, block, pages.back());
  }
  return pages;
}

void release(SmallCache& cache, const std::vector<int32_t>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) cache.pages.release(*page);
}

PrefixMatch match(SmallCache& cache, const std::vector<int32_t>& tokens, bool exact = true,
                  const std::vector<ImageSpan>& images = {}) {
  return cache.index.match(hashes_of(tokens, images), tokens, exact);
}

TEST(BlockHash, NamesParentTokensSeedAndChain) {
  const std::vector<int32_t> tokens = tokens_of({1, 2}, 0), other = tokens_of({1, 3}, 0);
  const BlockHash root = chain_root(Chain::kExact);
  const std::vector<BlockHash> hashes = {
      root,
      chain_root(Chain::kDownstream),
      block_hash(root, tokens, 0),
      block_hash(root, other, 0),
      block_hash(root, tokens, 1),
      block_hash(chain_root(Chain::kDownstream), tokens, 0),
      block_hash(block_hash(root, tokens, 0), tokens, 0),
  };
  std::set<std::pair<uint64_t, uint64_t>> distinct;
  for (const BlockHash& hash : hashes) distinct.emplace(hash.low, hash.high);
  EXPECT_EQ(distinct.size(), hashes.size());
  EXPECT_EQ(block_hash(root, tokens, 0), hashes[2]);
}

TEST(BlockHashes, EverySaltHasItsOwn) {
  const std::vector<int32_t> tokens = tokens_of({1, 2}, 0);
  const auto salted = [&](std::string_view salt) {
    BlockHashes hashes(kBlock, {}, block_hash, salt_seed(salt));
    hashes.extend(tokens);
    return hashes;
  };
  EXPECT_EQ(salted("").hash(Chain::kExact, 1), hashes_of(tokens).hash(Chain::kExact, 1));
  EXPECT_EQ(salted("a").hash(Chain::kExact, 1), salted("a").hash(Chain::kExact, 1));
  for (const int64_t block : {0, 1}) {
    EXPECT_NE(salted("a").hash(Chain::kExact, block), salted("").hash(Chain::kExact, block));
    EXPECT_NE(salted("a").hash(Chain::kExact, block), salted("b").hash(Chain::kExact, block));
    EXPECT_NE(salted("a").seed(block), salted("").seed(block));
  }
}

TEST(BlockHashes, GrowOneFullBlockAtATime) {
  const std::vector<int32_t> tokens = tokens_of({1, 2, 3}, 5);
  BlockHashes grown(kBlock);
  for (size_t length = 0; length <= tokens.size(); ++length) {
    grown.extend(std::span(tokens).first(length));
    EXPECT_EQ(grown.size(), std::ssize(tokens) > 0 ? static_cast<int64_t>(length) / kBlock : 0);
  }
  const BlockHashes at_once = hashes_of(tokens);
  for (const Chain chain : {Chain::kExact, Chain::kDownstream}) {
    EXPECT_EQ(grown.parent(chain, 0), chain_root(chain));
    for (int64_t block = 0; block < 3; ++block) {
      EXPECT_EQ(grown.hash(chain, block), at_once.hash(chain, block));
      EXPECT_EQ(grown.parent(chain, block + 1), grown.hash(chain, block));
      EXPECT_EQ(grown.prefix(chain, (block + 1) * kBlock), grown.hash(chain, block));
    }
  }
}

TEST(ImageSeed, NamesContentAndPlaceAndIsZeroWithoutImages) {
  const std::vector<ImageSpan> images = {{20, 40, 0xaaaa}, {40, 44, 0xbbbb}};
  EXPECT_EQ(image_seed(images, 0, 16), 0u);
  EXPECT_EQ(image_seed(images, 48, 64), 0u);
  std::set<uint64_t> seeds = {image_seed(images, 16, 32), image_seed(images, 32, 48)};
  seeds.insert(image_seed(std::vector<ImageSpan>{{20, 40, 0xaaac}}, 16, 32));
  seeds.insert(image_seed(std::vector<ImageSpan>{{21, 40, 0xaaaa}}, 16, 32));
  seeds.insert(image_seed(std::vector<ImageSpan>{{20, 42, 0xaaaa}, {42, 44, 0xbbbb}}, 32, 48));
  EXPECT_EQ(seeds.size(), 5u);
  EXPECT_FALSE(seeds.contains(0));
}

TEST(PrefixIndex, FindsTheLongestRunButNeverTheLastBlock) {
  SmallCache cache(8);
  const auto pages = run_request(cache, tokens_of({1, 2, 3}));
  release(cache, pages);
  EXPECT_EQ(match(cache, tokens_of({1, 2, 3}, 1)).pages, pages);
  // Exactly three blocks: the last token's block has to run.
  const PrefixMatch cut = match(cache, tokens_of({1, 2, 3}, 0));
  EXPECT_EQ(cut.pages, std::vector<int32_t>(pages.begin(), pages.begin() + 2));
  EXPECT_EQ(cut.tokens, 2 * kBlock);
  EXPECT_EQ(cut.exact_blocks, 2);
  EXPECT_EQ(cut.hashes[1], hashes_of(tokens_of({1, 2})).hash(Chain::kExact, 1));
  EXPECT_EQ(match(cache, tokens_of({1, 2, 4})).pages.size(), 2u);
  EXPECT_TRUE(match(cache, tokens_of({2, 2, 3})).pages.empty());  // the second block alone is not found
  EXPECT_TRUE(match(cache, tokens_of({}, 3)).pages.empty());
  EXPECT_TRUE(match(cache, tokens_of({}, 0)).pages.empty());
  EXPECT_EQ(cache.index.stats().collisions, 0);
}

TEST(PrefixIndex, ForksShareClaimedPages) {
  SmallCache cache(4);
  const auto pages = run_request(cache, tokens_of({1, 2}));
  const PrefixMatch fork = match(cache, tokens_of({1, 2, 9}));
  ASSERT_EQ(fork.pages, pages);
  for (const int32_t page : fork.pages) cache.pages.claim(page);
  release(cache, pages);
  EXPECT_EQ(cache.pages.in_use(), 2);
  release(cache, fork.pages);
  EXPECT_EQ(cache.pages.cached(), 2);
  EXPECT_EQ(match(cache, tokens_of({1, 2, 9})).pages, pages);
}

TEST(PrefixIndex, EvictsTheEndOfAPrefixFirst) {
  SmallCache cache(3);
  release(cache, run_request(cache, tokens_of({1, 2, 3})));
  cache.pages.allocate();
  EXPECT_EQ(match(cache, tokens_of({1, 2, 3})).tokens, 2 * kBlock);
  cache.pages.allocate();
  EXPECT_EQ(match(cache, tokens_of({1, 2, 3})).tokens, kBlock);
  EXPECT_EQ(cache.index.stats().evicted, 2);
  EXPECT_EQ(cache.index.size(), 1);
}

TEST(PrefixIndex, AMissingMiddleHidesWhatFollowsUntilItIsBack) {
  SmallCache cache(5);
  const std::vector<int32_t> tokens = tokens_of({1, 2, 3});
  const auto pages = run_request(cache, tokens);
  cache.index.evict(pages[1]);
  EXPECT_EQ(match(cache, tokens).tokens, kBlock);
  const int32_t again = cache.pages.allocate().value();
  cache.index.publish(hashes_of(tokens), tokens, Chain::kExact, 1, again);
  EXPECT_EQ(match(cache, tokens).pages, (std::vector<int32_t>{pages[0], again, pages[2]}));
}

TEST(PrefixIndex, ADuplicateKeepsTheCanonicalPage) {
  SmallCache cache(5);
  const std::vector<int32_t> tokens = tokens_of({1});
  const auto first = run_request(cache, tokens);
  release(cache, first);
  release(cache, run_request(cache, tokens_of({2})));  // newer in the cache than `first`
  const int32_t duplicate = cache.pages.allocate().value();
  const auto published = cache.index.publish(hashes_of(tokens), tokens, Chain::kExact, 0, duplicate);
  EXPECT_TRUE(published.indexed);
  EXPECT_EQ(published.canonical, first[0]);
  EXPECT_EQ(cache.index.stats().duplicates, 1);
  EXPECT_EQ(match(cache, tokens).pages, first);
  cache.pages.release(duplicate);
  EXPECT_EQ(cache.pages.vacant(), 3);
  // And it is the newest now: the other one goes first.
  for (int i = 0; i < 4; ++i) cache.pages.allocate();
  EXPECT_EQ(match(cache, tokens).pages, first);
  EXPECT_TRUE(match(cache, tokens_of({2})).pages.empty());
}

TEST(PrefixIndex, DownstreamBlocksAreFoundByThoseWhoAcceptThem) {
  SmallCache cache(8);
  const std::vector<int32_t> tokens = tokens_of({1, 2, 3, 4});
  const auto exact = run_request(cache, tokens_of({1, 2}));
  const BlockHashes hashes = hashes_of(tokens);
  std::vector<int32_t> downstream;
  for (int64_t block = 2; block < 4; ++block) {
    downstream.push_back(cache.pages.allocate().value());
    cache.index.publish(hashes, tokens, Chain::kDownstream, block, downstream.back());
  }
  EXPECT_EQ(match(cache, tokens, true).pages, exact);
  const PrefixMatch all = match(cache, tokens, false);
  EXPECT_EQ(all.pages, (std::vector<int32_t>{exact[0], exact[1], downstream[0], downstream[1]}));
  EXPECT_EQ(all.exact_blocks, 2);
  EXPECT_EQ(all.hashes[3], hashes.hash(Chain::kDownstream, 3));
  // An exact block three is preferred once there is one, and the downstream one behind it still counts.
  const int32_t third = cache.pages.allocate().value();
  cache.index.publish(hashes, tokens, Chain::kExact, 2, third);
  EXPECT_EQ(match(cache, tokens, true).pages, (std::vector<int32_t>{exact[0], exact[1], third}));
  EXPECT_EQ(match(cache, tokens, false).pages, (std::vector<int32_t>{exact[0], exact[1], third, downstream[1]}));
}

TEST(PrefixIndex, ImagesNameTheirBlocks) {
  SmallCache cache(8);
  const std::vector<int32_t> tokens = tokens_of({1, 2, 3});
  const std::vector<ImageSpan> cat = {{20, 30, 0xca7}}, dog = {{20, 30, 0xd06}};
  const auto pages = run_request(cache, tokens, Chain::kExact, cat);
  EXPECT_EQ(match(cache, tokens, true, cat).pages, pages);
  EXPECT_EQ(match(cache, tokens, true, dog).tokens, kBlock);
  EXPECT_EQ(match(cache, tokens).tokens, kBlock);
}

// A hash whose low half knows nothing but whether the block's name is odd.
BlockHash weak_hash(const BlockHash& parent, std::span<const int32_t> tokens, uint64_t seed) {
  return {static_cast<uint64_t>(tokens[0] / 100 % 2), block_hash(parent, tokens, seed).high};
}

TEST(PrefixIndex, ACollisionIsAMissAndCounted) {
  SmallCache cache(8);
  const std::vector<int32_t> one = tokens_of({1, 2}), two = tokens_of({3, 2});
  const BlockHashes hashes_one = hashes_of(one, {}, weak_hash), hashes_two = hashes_of(two, {}, weak_hash);
  ASSERT_EQ(hashes_one.hash(Chain::kExact, 0).low, hashes_two.hash(Chain::kExact, 0).low);
  const int32_t page = cache.pages.allocate().value();
  cache.index.publish(hashes_one, one, Chain::kExact, 0, page);
  EXPECT_EQ(cache.index.match(hashes_one, one, true).pages, std::vector<int32_t>{page});
  EXPECT_TRUE(cache.index.match(hashes_two, two, true).pages.empty());
  EXPECT_EQ(cache.index.stats().collisions, 1);
  EXPECT_FALSE(cache.index.contains(hashes_two.hash(Chain::kExact, 0)));
  const int32_t loser = cache.pages.allocate().value();
  const auto published = cache.index.publish(hashes_two, two, Chain::kExact, 0, loser);
  EXPECT_FALSE(published.indexed);
  EXPECT_EQ(cache.index.stats().collisions, 2);
  EXPECT_EQ(cache.index.match(hashes_one, one, true).pages, std::vector<int32_t>{page});
  EXPECT_FALSE(cache.pages.published(loser));
}

// Equal tokens behind different parents of one key: the parents are compared as well.
TEST(PrefixIndex, ACollisionOfTheParentIsAMissToo) {
  SmallCache cache(8);
  const std::vector<int32_t> one = tokens_of({1, 2}), two = tokens_of({3, 2});
  const BlockHashes hashes_one = hashes_of(one, {}, weak_hash), hashes_two = hashes_of(two, {}, weak_hash);
  const auto old = cache.pages.allocate().value(), second = cache.pages.allocate().value();
  cache.index.publish(hashes_one, one, Chain::kExact, 0, old);
  cache.index.evict(old);
  cache.index.publish(hashes_one, one, Chain::kExact, 1, second);
  cache.index.publish(hashes_two, two, Chain::kExact, 0, cache.pages.allocate().value());
  EXPECT_EQ(cache.index.match(hashes_two, two, true).tokens, kBlock);
  EXPECT_EQ(cache.index.stats().collisions, 1);
}

TEST(PrefixIndex, CountsWhatWasUsed) {
  SmallCache cache(8);
  run_request(cache, tokens_of({1, 2}));
  const PrefixMatch found = match(cache, tokens_of({1, 2}));
  cache.index.record(2 * kBlock + 1, found, kBlock);
  cache.index.record(10, PrefixMatch{}, 0);
  EXPECT_EQ(cache.index.stats().queries, 2);
  EXPECT_EQ(cache.index.stats().queried_tokens, 2 * kBlock + 11);
  EXPECT_EQ(cache.index.stats().matched_tokens, 2 * kBlock);
  EXPECT_EQ(cache.index.stats().hit_tokens, kBlock);
  EXPECT_EQ(cache.index.stats().published, 2);
}

TEST(PrefixIndex, ClearKeepsPagesInUseAndTellsTheHook) {
  SmallCache cache(4);
  const auto used = run_request(cache, tokens_of({1}));
  release(cache, run_request(cache, tokens_of({2})));
  std::vector<BlockHash> told;
  cache.index.set_eviction_hook([&](const BlockHash& hash) { told.push_back(hash); });
  cache.index.clear();
  EXPECT_EQ(told.size(), 2u);
  EXPECT_EQ(cache.index.size(), 0);
  EXPECT_EQ(cache.pages.cached(), 0);
  EXPECT_EQ(cache.pages.references(used[0]), 1);
  cache.pages.release(used[0]);
  EXPECT_EQ(cache.pages.vacant(), 4);
}

TEST(PrefixIndexDeathTest, MisuseStops) {
  SmallCache cache(4);
  const std::vector<int32_t> tokens = tokens_of({1, 2});
  const BlockHashes hashes = hashes_of(tokens);
  const int32_t page = cache.pages.allocate().value();
  cache.index.publish(hashes, tokens, Chain::kExact, 0, page);
  EXPECT_DEATH(cache.index.publish(hashes, tokens, Chain::kExact, 0, page), "published already");
  EXPECT_DEATH(cache.index.publish(hashes, tokens, Chain::kExact, 1, page), "published already");
  EXPECT_DEATH(cache.index.publish(hashes, tokens, Chain::kExact, 1, 3), "not in use");
  EXPECT_DEATH(cache.index.publish(hashes, tokens, Chain::kExact, 2, 3), "block 2");
  EXPECT_DEATH(cache.index.match(BlockHashes(kBlock), tokens, true), "0 hashes of 2");
}

}  // namespace
}  // namespace folio
