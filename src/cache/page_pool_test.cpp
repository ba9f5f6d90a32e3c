#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include "cache/cache_test_util.h"

namespace folio {
namespace {

struct Pool : PagePool {
  explicit Pool(int32_t count) : Pool(count, std::make_shared<Geometry>(test::small_inputs())) {}
  Pool(int32_t count, const std::shared_ptr<Geometry>& geometry) : PagePool(device(), *geometry, count) {}
  static Device& device() {
    static const auto cpu = make_cpu_device();
    return *cpu;
  }
  // Allocates, publishes and releases.
  int32_t cache_one() {
    const int32_t page = allocate().value();
    publish(page);
    release(page);
    return page;
  }
};

TEST(PagePool, HandsOutVacantPagesLowestFirstThenLastReturnedFirst) {
  Pool pool(4);
  for (int32_t page = 0; page < 4; ++page) EXPECT_EQ(pool.allocate(), page);
  EXPECT_EQ(pool.allocate(), std::nullopt);
  for (const int32_t page : {2, 0, 3}) pool.release(page);
  for (const int32_t page : {3, 0, 2}) EXPECT_EQ(pool.allocate(), page);
  EXPECT_EQ(pool.stats().allocated, 7);
  EXPECT_EQ(pool.stats().most_used, 4);
}

TEST(PagePool, MemoryIsPagesTimesPageBytes) {
  const Geometry geometry(test::small_inputs());
  const PagePool pool(Pool::device(), geometry, 7);
  EXPECT_EQ(pool.bytes(), 7 * geometry.page_bytes());
  EXPECT_EQ(pool.capacity(), 7);
}

TEST(PagePool, KeepsAPageWhileAnyoneRefersToIt) {
  Pool pool(2);
  const int32_t page = pool.allocate().value();
  pool.claim(page);
  EXPECT_EQ(pool.references(page), 2);
  pool.release(page);
  EXPECT_EQ(pool.in_use(), 1);
  pool.release(page);
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_EQ(pool.vacant(), 2);
}

TEST(PagePool, NamesContents) {
  Pool pool(1);
  EXPECT_EQ(pool.content(0), 0);
  const int32_t page = pool.cache_one();
  const uint64_t content = pool.content(page);
  EXPECT_NE(content, 0);
  pool.claim(page);  // revived: the same content
  EXPECT_EQ(pool.content(page), content);
  pool.release(page);
  EXPECT_EQ(pool.allocate(), page);
  const uint64_t another = pool.content(page);
  EXPECT_NE(another, content);
  pool.release(page);
  EXPECT_EQ(pool.content(page), 0);
  const int32_t dropped = pool.cache_one();
  pool.unpublish(dropped);
  EXPECT_EQ(pool.content(dropped), 0);
}

TEST(PagePool, TellsWhichPagesHaveLostTheirContent) {
  Pool pool(2);
  std::vector<int32_t> discarded;
  pool.set_discard_hook([&](int32_t page) { discarded.push_back(page); });
  const int32_t cached = pool.cache_one();
  EXPECT_TRUE(discarded.empty());
  const int32_t other = pool.allocate().value();
  pool.release(other);
  EXPECT_EQ(discarded, std::vector<int32_t>{other});
  pool.allocate();
  EXPECT_EQ(pool.allocate(), cached);  // handed out from the cache
  EXPECT_EQ(discarded, (std::vector<int32_t>{other, cached}));
  pool.release(cached);
  const auto units = pool.allocate_units(1, 1);
  pool.release_units(1, *units);
  EXPECT_EQ(discarded, (std::vector<int32_t>{other, cached, cached, cached}));
}

TEST(PagePool, EvictsTheLeastRecentlyReleasedAfterTheVacant) {
  Pool pool(4);
  std::vector<int32_t> evicted;
  pool.set_eviction_hook([&](int32_t page) {
    EXPECT_FALSE(pool.published(page));
    evicted.push_back(page);
  });
  std::vector<int32_t> used;
  for (int i = 0; i < 3; ++i) used.push_back(pool.allocate().value());
  for (const int32_t page : used) pool.publish(page);
  for (const int32_t page : {1, 0, 2}) pool.release(page);
  EXPECT_EQ(pool.cached(), 3);
  EXPECT_EQ(pool.vacant(), 1);
  EXPECT_EQ(pool.allocate(), 3);  // vacant
  EXPECT_TRUE(evicted.empty());
  EXPECT_EQ(pool.allocate(), 1);
  pool.touch(0);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), std::nullopt);
  EXPECT_EQ(evicted, (std::vector<int32_t>{1, 2, 0}));
  EXPECT_EQ(pool.stats().evicted, 3);
}

TEST(PagePool, ClaimRevivesACachedPage) {
  Pool pool(3);
  const int32_t first = pool.cache_one(), second = [&] {
    const int32_t page = pool.allocate().value();
    pool.publish(page);
    return page;
  }();
  pool.release(second);
  pool.claim(first);
  EXPECT_EQ(pool.references(first), 1);
  EXPECT_EQ(pool.stats().revived, 1);
  EXPECT_TRUE(pool.published(first));
  pool.release(first);  // now the newest
  EXPECT_NE(pool.allocate(), first);
  EXPECT_EQ(pool.allocate(), second);
  EXPECT_EQ(pool.allocate(), first);
}

TEST(PagePool, UnpublishingACachedPageMakesItVacant) {
  Pool pool(2);
  const int32_t page = pool.cache_one();
  pool.unpublish(page);
  EXPECT_EQ(pool.vacant(), 2);
  const int32_t used = pool.allocate().value();
  pool.publish(used);
  pool.unpublish(used);
  pool.release(used);
  EXPECT_EQ(pool.cached(), 0);
}

TEST(PagePool, CoversCountsPagesThatTheClaimWouldTake) {
  Pool pool(4);
  const int32_t cached = pool.cache_one();
  const int32_t used = pool.allocate().value();
  EXPECT_EQ(pool.available(), 3);
  EXPECT_TRUE(pool.covers({}, 3));
  const std::vector<int32_t> both = {cached, used};
  EXPECT_TRUE(pool.covers(both, 2));
  EXPECT_FALSE(pool.covers(both, 3));
}

TEST(PagePool, UnitsAreTakenAndReturnedAsASet) {
  Pool pool(5);
  pool.allocate();
  pool.cache_one();
  EXPECT_EQ(pool.allocate_units(1, 5), std::nullopt);
  EXPECT_EQ(pool.cached(), 1);  // refused before anything was evicted
  const auto units = pool.allocate_units(1, 4);
  ASSERT_TRUE(units.has_value());
  EXPECT_EQ(pool.units(), 4);
  EXPECT_EQ(pool.in_use(), 5);
  EXPECT_EQ(pool.stats().evicted, 1);
  pool.release_units(1, std::vector<int32_t>(units->rbegin(), units->rend()));
  EXPECT_EQ(pool.units(), 0);
  EXPECT_EQ(pool.vacant(), 4);
}

// An eviction may free units, as it does when an image loses its prefix, while other units are being taken.
TEST(PagePool, TheHookMayReleaseUnits) {
  Pool pool(6);
  const auto first = pool.allocate_units(1, 3).value();
  for (int i = 0; i < 3; ++i) {
    const int32_t page = pool.allocate().value();
    pool.publish(page);
    pool.claim(page);
  }
  for (int32_t page = 3; page < 6; ++page) {
    pool.release(page);
    pool.release(page);
  }
  pool.set_eviction_hook([&](int32_t) {
    if (pool.units() >= 3 && pool.stats().evicted == 1) pool.release_units(1, first);
  });
  const auto second = pool.allocate_units(2, 3).value();
  EXPECT_EQ(pool.units(), 3);
  EXPECT_EQ(pool.stats().evicted, 1);  // the freed units came before further evictions
  EXPECT_EQ(pool.available(), 3);
  pool.release_units(2, second);
}

TEST(PagePool, ResetForgetsWhoeverHasPages) {
  Pool pool(6);
  bool told = false;
  pool.set_eviction_hook([&](int32_t) { told = true; });
  pool.set_discard_hook([&](int32_t) { told = true; });
  const int32_t cached = pool.cache_one(), used = pool.allocate().value();
  pool.publish(used);
  ASSERT_TRUE(pool.allocate_units(7, 3));
  pool.reset();
  EXPECT_FALSE(told);
  EXPECT_EQ(pool.vacant(), 6);
  EXPECT_EQ(pool.cached() + pool.units() + pool.in_use(), 0);
  EXPECT_FALSE(pool.published(cached) || pool.published(used));
  ASSERT_TRUE(pool.allocate_units(7, 2));
  for (int32_t page = 2; page < 6; ++page) EXPECT_EQ(pool.allocate(), page);
}

TEST(PagePoolDeathTest, MisuseStops) {
  Pool pool(4);
  const int32_t page = pool.allocate().value();
  const auto units = pool.allocate_units(9, 2).value();
  EXPECT_DEATH(pool.release(-1), "page -1");
  EXPECT_DEATH(pool.claim(4), "page 4 of 4");
  EXPECT_DEATH(pool.release(units[0]), "not in a page table");
  EXPECT_DEATH(pool.claim(units[0]), "no content");
  EXPECT_DEATH(pool.claim(3), "no content");
  EXPECT_DEATH(pool.release(3), "not in a page table");
  EXPECT_DEATH(pool.release_units(9, std::vector<int32_t>{units[0]}), "returns 1 units");
  EXPECT_DEATH(pool.release_units(9, std::vector<int32_t>{units[0], units[0]}), "no unit of owner 9");
  EXPECT_DEATH(pool.release_units(9, std::vector<int32_t>{units[0], page}), "no unit of owner 9");
  EXPECT_DEATH(pool.release_units(8, units), "owner 8");
  EXPECT_DEATH(pool.allocate_units(9, 1), "owner 9");
  EXPECT_DEATH(pool.unpublish(page), "not published");
  pool.publish(page);
  EXPECT_DEATH(pool.publish(page), "published already");
  pool.release(page);
  EXPECT_DEATH(pool.release(page), "not in a page table");
}

}  // namespace
}  // namespace folio
