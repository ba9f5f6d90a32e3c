#include "cache/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cache/cache_test_util.h"

namespace folio {
namespace {

using test::SmallCache;

BlockHash name(uint64_t value) { return {value, ~value}; }

ImageId ready(SmallCache& cache, uint64_t prefix, bool exact = true) {
  const auto id = cache.images.begin_store({name(prefix), exact});
  EXPECT_TRUE(id.has_value());
  cache.images.complete_store(*id);
  return *id;
}

TEST(Images, TakeTheUnitsThatTheirBytesNeed) {
  const Geometry geometry(test::small_inputs());
  EXPECT_EQ(image_bytes(geometry, ImageKind::kBoundary), 1600 + 64);  // 3 * 16 * 33 of rings, 40 of cursor, aligned
  EXPECT_EQ(image_bytes(geometry, ImageKind::kPrivate), geometry.state_bytes());
  EXPECT_EQ(image_units(geometry, ImageKind::kBoundary),
            (image_bytes(geometry, ImageKind::kBoundary) + geometry.page_bytes() - 1) / geometry.page_bytes());
  // At the published dimensions (spec runtime 2.3 counts 25 units of 113,920 bytes).
  const Geometry published({.owners = {{2, 2}, {8, 2}, {14, 2}, {20, 1}},
                            .window_layers = 40,
                            .window = 128,
                            .head_dim = 512,
                            .index_dim = 128,
                            .block_size = 128,
                            .format = {.packed = true}});
  EXPECT_LE(image_units(published, ImageKind::kBoundary), 25);
  EXPECT_LE(image_units(published, ImageKind::kPrivate), 25);
}

TEST(Images, GoFromCopyingToReady) {
  SmallCache cache(20);
  const auto id = cache.images.begin_store({name(1), true});
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(cache.images.state(*id), ImageState::kCopying);
  EXPECT_EQ(cache.images.find(name(1), false), std::nullopt);
  EXPECT_EQ(cache.pages.units(), cache.units());
  EXPECT_EQ(cache.images.reclaimable(), 0);
  EXPECT_FALSE(cache.images.evict_one());  // it is being written
  cache.images.complete_store(*id);
  EXPECT_EQ(cache.images.state(*id), ImageState::kReady);
  EXPECT_EQ(cache.images.find(name(1), true), id);
  EXPECT_EQ(cache.images.reclaimable(), cache.units());
  EXPECT_TRUE(cache.images.evict_one());
  EXPECT_EQ(cache.images.find(name(1), true), std::nullopt);
  EXPECT_EQ(cache.pages.units(), 0);
  EXPECT_EQ(cache.images.size(), 0);
  EXPECT_EQ(cache.images.stats().evicted, 1);
}

TEST(Images, RefuseADuplicateReadyOrPending) {
  SmallCache cache(30);
  const auto id = cache.images.begin_store({name(1), true});
  EXPECT_EQ(cache.images.begin_store({name(1), true}), std::nullopt);
  cache.images.complete_store(*id);
  EXPECT_EQ(cache.images.begin_store({name(1), true}), std::nullopt);
  EXPECT_EQ(cache.images.begin_store({name(1), false}), std::nullopt);  // the exact one serves as well
  EXPECT_EQ(cache.images.stats().duplicates, 3);
}

TEST(Images, AnExactImageReplacesOneThatIsNot) {
  SmallCache cache(30);
  const ImageId encoder = ready(cache, 1, false);
  EXPECT_EQ(cache.images.find(name(1), false), encoder);
  EXPECT_EQ(cache.images.find(name(1), true), std::nullopt);
  const ImageId exact = ready(cache, 1, true);
  EXPECT_EQ(cache.images.find(name(1), false), exact);
  EXPECT_EQ(cache.images.find(name(1), true), exact);
  EXPECT_FALSE(cache.images.contains(encoder));
  EXPECT_EQ(cache.images.size(), 1);
}

TEST(Images, RefuseBeforeEvictingAnything) {
  SmallCache cache(9);
  const int32_t units = cache.units();
  ASSERT_EQ(units, 2);
  const ImageId pinned = ready(cache, 1), free = ready(cache, 2);
  cache.images.pin(pinned);
  // One cached page, and the rest in use.
  const int32_t page = cache.pages.allocate().value();
  while (cache.pages.available() > 0) cache.pages.allocate();
  cache.pages.publish(page);
  cache.pages.release(page);
  EXPECT_EQ(cache.pages.available() + cache.images.reclaimable(), 3);
  EXPECT_TRUE(cache.images.begin_store({name(3), true}).has_value());  // evicts `free`, then takes what there is
  EXPECT_FALSE(cache.images.contains(free));
  EXPECT_EQ(cache.pages.stats().evicted, 0);
  EXPECT_EQ(cache.images.begin_store({name(4), true}), std::nullopt);
  EXPECT_EQ(cache.images.stats().refused, 1);
  EXPECT_EQ(cache.pages.cached(), 1);
  EXPECT_TRUE(cache.images.contains(pinned));
}

TEST(Images, EvictTheLeastRecentlyUsed) {
  SmallCache cache(30);
  const ImageId a = ready(cache, 1), b = ready(cache, 2), c = ready(cache, 3);
  cache.images.pin(a);
  cache.images.pin(a);
  cache.images.unpin(a);
  EXPECT_TRUE(cache.images.evict_one());
  EXPECT_FALSE(cache.images.contains(b));
  cache.images.unpin(a);  // now newer than c
  EXPECT_TRUE(cache.images.evict_one());
  EXPECT_FALSE(cache.images.contains(c));
  EXPECT_TRUE(cache.images.evict_one());
  EXPECT_FALSE(cache.images.evict_one());
}

TEST(Images, UnindexedInFlightLiveUntilTheirReadersAndWritersAreDone) {
  SmallCache cache(30);
  const ImageId read = ready(cache, 1);
  const auto written = cache.images.begin_store({name(2), true});
  const ImageId idle = ready(cache, 3);
  cache.images.pin(read);
  for (const uint64_t prefix : {1, 2, 3}) cache.images.unindex(name(prefix));
  EXPECT_EQ(cache.images.stats().orphaned, 3);
  EXPECT_FALSE(cache.images.contains(idle));
  EXPECT_EQ(cache.images.state(read), ImageState::kEvicting);
  EXPECT_EQ(cache.images.state(*written), ImageState::kEvicting);
  EXPECT_EQ(cache.pages.units(), 2 * cache.units());
  EXPECT_EQ(cache.images.find(name(1), false), std::nullopt);
  // The name is free again while the old image goes.
  const auto again = cache.images.begin_store({name(2), true});
  ASSERT_TRUE(again.has_value());
  cache.images.complete_store(*written);
  EXPECT_FALSE(cache.images.contains(*written));
  cache.images.unpin(read);
  EXPECT_FALSE(cache.images.contains(read));
  cache.images.complete_store(*again);
  EXPECT_EQ(cache.images.find(name(2), true), again);
}

TEST(Images, LoseTheirPlaceWithThePageOfTheirPrefix) {
  SmallCache cache(6);
  const auto tokens = test::tokens_of({1});
  const auto hashes = test::hashes_of(tokens);
  const int32_t page = cache.pages.allocate().value();
  cache.index.publish(hashes, tokens, Chain::kExact, 0, page);
  const auto id = cache.images.begin_store({hashes.hash(Chain::kExact, 0), true});
  cache.images.complete_store(*id);
  cache.pages.release(page);
  while (cache.pages.vacant() > 0) cache.pages.allocate();
  EXPECT_TRUE(cache.images.contains(*id));
  EXPECT_EQ(cache.pages.allocate(), page);
  EXPECT_FALSE(cache.images.contains(*id));
  EXPECT_EQ(cache.images.stats().orphaned, 1);
}

TEST(Images, PrivateOnesKeepPagesForTheirRequest) {
  SmallCache cache(30);
  const int32_t tail = cache.pages.allocate().value();
  const auto id = cache.images.begin_private(7, {tail});
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(cache.images.find_private(7), std::nullopt);
  cache.images.complete_store(*id);
  EXPECT_EQ(cache.images.find_private(7), id);
  EXPECT_EQ(cache.images.find_private(8), std::nullopt);
  EXPECT_EQ(cache.images.owner(*id), 7);
  EXPECT_EQ(cache.images.kept_pages(*id), std::vector<int32_t>{tail});
  EXPECT_TRUE(cache.images.evict_one());
  EXPECT_EQ(cache.pages.in_use(), 0);
}

TEST(Images, KeptPagesCountAsReclaimableWhenNobodyElseUsesThem) {
  SmallCache cache(30);
  const int32_t own = cache.pages.allocate().value(), shared = cache.pages.allocate().value();
  cache.pages.claim(shared);  // a sibling's
  const auto id = cache.images.begin_private(7, {own, shared});
  EXPECT_EQ(cache.images.reclaimable(), 0);  // it is being written
  cache.images.complete_store(*id);
  EXPECT_EQ(cache.images.reclaimable(), cache.images.image(*id).units.size() + 1);
  const int32_t before = cache.pages.available();
  const int64_t promised = cache.images.reclaimable();
  EXPECT_TRUE(cache.images.evict_one());
  EXPECT_EQ(cache.pages.available(), before + promised);
  EXPECT_EQ(cache.pages.references(shared), 1);
}

TEST(Images, OneIsSpared) {
  SmallCache cache(30);
  const ImageId first = ready(cache, 1), second = ready(cache, 2);
  EXPECT_EQ(cache.images.reclaimable(first), cache.units());
  EXPECT_TRUE(cache.images.evict_one(first));
  EXPECT_TRUE(cache.images.contains(first));
  EXPECT_FALSE(cache.images.contains(second));
  EXPECT_FALSE(cache.images.evict_one(first));
  EXPECT_EQ(cache.images.reclaimable(first), 0);
}

TEST(Images, ClearSparesPrivateOnes) {
  SmallCache cache(30);
  const ImageId boundary = ready(cache, 1), busy = ready(cache, 2);
  cache.images.pin(busy);
  const auto own = cache.images.begin_private(7);
  cache.images.complete_store(*own);
  cache.images.clear();
  EXPECT_FALSE(cache.images.contains(boundary));
  EXPECT_EQ(cache.images.state(busy), ImageState::kEvicting);
  EXPECT_EQ(cache.images.find_private(7), own);
}

TEST(Images, OthersLayoutsAreRefused) {
  const Geometry geometry(test::small_inputs());
  const StateImage good{.identity = geometry.identity(),
                        .kind = ImageKind::kBoundary,
                        .bytes = image_bytes(geometry, ImageKind::kBoundary),
                        .units = {5, 1}};
  check_image(geometry, good, 6);
  const auto refusal = [&](const std::function<void(StateImage&)>& change) -> std::string {
    StateImage image = good;
    change(image);
    try {
      check_image(geometry, image, 6);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "accepted";
  };
  using testing::HasSubstr;
  const std::string other = Geometry(test::small_inputs(5)).identity();
  EXPECT_THAT(refusal([&](StateImage& image) { image.identity = other; }), HasSubstr(other));
  EXPECT_THAT(refusal([](StateImage& image) { ++image.bytes; }), HasSubstr("bytes"));
  EXPECT_THAT(refusal([](StateImage& image) { image.kind = ImageKind::kPrivate; }), HasSubstr("bytes"));
  EXPECT_THAT(refusal([](StateImage& image) { image.units.pop_back(); }), HasSubstr("in 1 units"));
  EXPECT_THAT(refusal([](StateImage& image) { image.units[1] = 5; }), HasSubstr("unit 5 twice"));
  EXPECT_THAT(refusal([](StateImage& image) { image.units[1] = 6; }), HasSubstr("unit 6"));
  EXPECT_THAT(refusal([](StateImage& image) { image.units[1] = -1; }), HasSubstr("unit -1"));
}

TEST(ImagesDeathTest, MisuseStops) {
  SmallCache cache(30);
  const ImageId id = ready(cache, 1);
  const auto writing = cache.images.begin_store({name(2), true});
  EXPECT_DEATH(cache.images.unpin(id), "not pinned");
  EXPECT_DEATH(cache.images.pin(*writing), "not ready");
  EXPECT_DEATH(cache.images.complete_store(id), "written already");
  EXPECT_DEATH(cache.images.state(99), "no image 99");
  cache.images.begin_private(3);
  EXPECT_DEATH(cache.images.begin_private(3), "has an image already");
  EXPECT_DEATH(cache.images.begin_private(4, {29}), "not in use");
}

}  // namespace
}  // namespace folio
