#include "cache/state_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cache/cache_test_util.h"

namespace folio {
namespace {

using test::kBlock;
using test::SmallCache;

TEST(Ladder, IntervalIsSnappedDownToTheBlock) {
  EXPECT_EQ(snap_interval(8192, 128), 8192);
  EXPECT_EQ(snap_interval(8200, 128), 8192);
  EXPECT_EQ(snap_interval(127, 128), 0);
  EXPECT_EQ(snap_interval(0, 128), 0);
  EXPECT_EQ(snap_interval(-5, 128), 0);
}

TEST(Ladder, ChunksEndOnTheLastRungInside) {
  const Ladder ladder{.interval = 64, .block = 16, .leave_room = 1};
  const Rungs none;
  EXPECT_EQ(cut_chunk(ladder, none, 0, 50, 300), 50);      // no rung inside
  EXPECT_EQ(cut_chunk(ladder, none, 0, 64, 300), 64);      // on it
  EXPECT_EQ(cut_chunk(ladder, none, 0, 200, 300), 192);    // the last of three
  EXPECT_EQ(cut_chunk(ladder, none, 192, 200, 300), 200);  // already on it
  EXPECT_EQ(cut_chunk(ladder, none, 100, 192, 192), 128);  // a rung at the very end leaves no token to run
  EXPECT_EQ(cut_chunk(ladder, none, 128, 192, 192), 192);
  EXPECT_EQ(cut_chunk({.interval = 64, .block = 16, .leave_room = 20}, none, 0, 210, 210), 128);
  EXPECT_EQ(cut_chunk({.interval = 0, .block = 16}, none, 0, 300, 300), 300);
}

TEST(Ladder, TheDemandedRungComesWhenItIsFirst) {
  const Ladder ladder{.interval = 64, .block = 16, .leave_room = 1};
  EXPECT_EQ(cut_chunk(ladder, {.demand = 48}, 0, 60, 300), 48);
  EXPECT_EQ(cut_chunk(ladder, {.demand = 48}, 0, 200, 300), 48);
  EXPECT_EQ(cut_chunk(ladder, {.demand = 80}, 0, 70, 300), 64);
  EXPECT_EQ(cut_chunk(ladder, {.demand = 80}, 64, 127, 300), 80);
  EXPECT_EQ(cut_chunk(ladder, {.demand = 48}, 48, 60, 300), 60);  // passed
  EXPECT_EQ(cut_chunk(ladder, {.demand = 80}, 0, 40, 300), 40);   // not reached
  EXPECT_EQ(cut_chunk({.interval = 0, .block = 16, .leave_room = 30}, {.demand = 80}, 0, 100, 100), 100);
}

// Chunks always move on and reach every rung that they could.
TEST(Ladder, CutsAlwaysProgress) {
  for (const int64_t interval : {0, 16, 48, 64}) {
    for (const int64_t room : {1, 17}) {
      for (int64_t total = 1; total < 150; total += 7) {
        for (int64_t begin = 0; begin < total; ++begin) {
          for (int64_t end = begin + 1; end <= total; end += 3) {
            const Ladder ladder{.interval = interval, .block = 16, .leave_room = room};
            const Rungs rungs{.demand = 32};
            const int64_t cut = cut_chunk(ladder, rungs, begin, end, total);
            ASSERT_GT(cut, begin);
            ASSERT_LE(cut, end);
            if (cut < end) {
              ASSERT_TRUE(keep_after_prefill(ladder, rungs, cut));
              ASSERT_GE(total - cut, room);
            }
          }
        }
      }
    }
  }
}

TEST(Ladder, KeepsAtRungsAndInDecodeAtLeastAnIntervalApart) {
  const Ladder ladder{.interval = 64, .block = 16};
  EXPECT_FALSE(keep_after_prefill(ladder, {}, 0));
  EXPECT_TRUE(keep_after_prefill(ladder, {}, 128));
  EXPECT_FALSE(keep_after_prefill(ladder, {}, 80));
  EXPECT_TRUE(keep_after_prefill(ladder, {.demand = 80}, 80));
  EXPECT_FALSE(keep_in_decode(ladder, {.last_kept = 32}, 80));
  EXPECT_FALSE(keep_in_decode(ladder, {.last_kept = 32}, 97));
  EXPECT_TRUE(keep_in_decode(ladder, {.last_kept = 32}, 96));
  EXPECT_FALSE(keep_in_decode({.interval = 0, .block = 16}, {}, 96));
  Rungs rungs{.demand = 80};
  rungs.passed(64);
  EXPECT_EQ(rungs.demand, 80);
  rungs.passed(80);
  EXPECT_EQ(rungs.demand, 0);
  EXPECT_EQ(rungs.last_kept, 80);
}

// A request of four published blocks in `cache`, with images where `images` says so.
struct Prefix {
  std::vector<int32_t> tokens = test::tokens_of({1, 2, 3, 4});
  BlockHashes hashes = test::hashes_of(tokens);
  Prefix(SmallCache& cache, int64_t exact_blocks) {
    for (int64_t block = 0; block < 4; ++block) {
      cache.index.publish(hashes, tokens, block < exact_blocks ? Chain::kExact : Chain::kDownstream, block,
                          cache.pages.allocate().value());
    }
  }
  ImageId image(SmallCache& cache, int64_t blocks, Chain chain, bool exact) {
    const auto id = cache.images.begin_store({hashes.prefix(chain, blocks * kBlock), exact});
    cache.images.complete_store(*id);
    return *id;
  }
  PrefixMatch match(SmallCache& cache, bool exact) { return cache.index.match(hashes, tokens, exact); }
};

TEST(CopyTransfer, ResumesAtTheNewestBoundaryWithAnImage) {
  SmallCache cache(30);
  Prefix prefix(cache, 4);
  const auto transfer =
      make_copy_transfer(cache.geometry, {.interval = 32, .block = kBlock}, cache.pages, cache.images);
  EXPECT_EQ(transfer->kind(), StateTransferKind::kCopy);
  EXPECT_EQ(transfer->resume(prefix.match(cache, true), true).hit, 0);
  const ImageId first = prefix.image(cache, 1, Chain::kExact, true);
  const ImageId third = prefix.image(cache, 3, Chain::kExact, false);
  const Resume exact = transfer->resume(prefix.match(cache, true), true);
  EXPECT_EQ(exact.hit, kBlock);
  EXPECT_EQ(exact.image, first);
  const Resume any = transfer->resume(prefix.match(cache, false), false);
  EXPECT_EQ(any.hit, 3 * kBlock);
  EXPECT_EQ(any.start, any.hit);
  EXPECT_EQ(any.write_from, any.hit);
  EXPECT_EQ(any.history, 0);
  EXPECT_EQ(any.image, third);
  EXPECT_EQ(any.blocks(kBlock), 3);
}

TEST(CopyTransfer, ExactRequestsStopAtDownstreamBlocks) {
  SmallCache cache(30);
  Prefix prefix(cache, 2);
  const auto transfer =
      make_copy_transfer(cache.geometry, {.interval = 32, .block = kBlock}, cache.pages, cache.images);
  const ImageId second = prefix.image(cache, 2, Chain::kExact, true);
  const ImageId fourth = prefix.image(cache, 4, Chain::kDownstream, true);
  EXPECT_EQ(transfer->resume(prefix.match(cache, false), true).image, second);
  EXPECT_EQ(transfer->resume(prefix.match(cache, false), false).image, fourth);
}

TEST(CopyTransfer, AMissedBoundaryBecomesADemandedRung) {
  SmallCache cache(20);
  Prefix prefix(cache, 4);
  const Ladder ladder{.interval = 10 * kBlock, .block = kBlock};
  const auto transfer = make_copy_transfer(cache.geometry, ladder, cache.pages, cache.images);
  const PrefixMatch match = prefix.match(cache, true);
  const Resume resume = transfer->resume(match, true);
  // Of 16 pages that are not in use, 2 hold an image that could be given up; another image takes 2.
  const auto other = cache.images.begin_store({{1, 1}, true});
  cache.images.complete_store(*other);
  EXPECT_EQ(transfer->admit(match, resume, 15).demand, 0);
  EXPECT_EQ(transfer->stats().demands_declined_no_room, 1);
  const Rungs rungs = transfer->admit(match, resume, 14);
  EXPECT_EQ(rungs.demand, 4 * kBlock);
  EXPECT_EQ(transfer->stats().demands_recorded, 2);
  EXPECT_EQ(transfer->cut(rungs, 0, 4 * kBlock + 1, 4 * kBlock + 1), 4 * kBlock);
  EXPECT_EQ(transfer->stats().chunks_cut_for_demand, 1);
  EXPECT_TRUE(transfer->keep(rungs, 4 * kBlock, false));
  prefix.image(cache, 4, Chain::kExact, true);
  const Resume hit = transfer->resume(match, true);
  EXPECT_EQ(hit.hit, 4 * kBlock);
  EXPECT_EQ(transfer->admit(match, hit, 1).demand, 0);
  EXPECT_EQ(transfer->admit(match, hit, 1).last_kept, 4 * kBlock);
  EXPECT_EQ(transfer->stats().demands_recorded, 2);
  EXPECT_EQ(transfer->stats().resumed, 2);
}

TEST(CopyTransfer, CountsChunksCutForTheInterval) {
  SmallCache cache(20);
  const auto transfer =
      make_copy_transfer(cache.geometry, {.interval = 32, .block = kBlock}, cache.pages, cache.images);
  EXPECT_EQ(transfer->cut({}, 0, 40, 100), 32);
  EXPECT_EQ(transfer->cut({}, 32, 64, 100), 64);
  EXPECT_EQ(transfer->stats().chunks_cut_for_interval, 1);
  EXPECT_TRUE(transfer->keep({}, 32, false));
  EXPECT_TRUE(transfer->keep({}, 48, true));
  EXPECT_FALSE(transfer->keep({}, 16, true));
}

TEST(ReplayTransfer, ResumesOneBlockBelowEveryHit) {
  SmallCache cache(30);
  Prefix prefix(cache, 2);
  const auto transfer = make_replay_transfer(cache.geometry, 3);
  EXPECT_EQ(transfer->kind(), StateTransferKind::kReplay);
  const PrefixMatch match = prefix.match(cache, false);
  const Resume resume = transfer->resume(match, false);
  EXPECT_EQ(resume.hit, 4 * kBlock);
  EXPECT_EQ(resume.start, 3 * kBlock);
  EXPECT_EQ(resume.write_from, 4 * kBlock);
  EXPECT_EQ(resume.history, 3);
  EXPECT_EQ(resume.image, std::nullopt);
  EXPECT_EQ(transfer->resume(match, true).hit, 0);  // exact requests do not
  const Rungs rungs = transfer->admit(match, resume, 1000);
  EXPECT_EQ(rungs.demand, 0);
  EXPECT_EQ(transfer->cut(rungs, 0, 500, 1000), 500);
  EXPECT_FALSE(transfer->keep(rungs, 512, true));
}

TEST(ReplayTransfer, AHitOfOneBlockStartsAtZero) {
  SmallCache cache(30);
  Prefix prefix(cache, 4);
  PrefixMatch match = prefix.match(cache, false);
  match.tokens = kBlock;
  const auto transfer = make_replay_transfer(cache.geometry, 3);
  const Resume resume = transfer->resume(match, false);
  EXPECT_EQ(resume.hit, kBlock);
  EXPECT_EQ(resume.start, 0);
  EXPECT_EQ(resume.history, 0);
  EXPECT_EQ(transfer->resume(PrefixMatch{}, false).hit, 0);
}

TEST(ReplayTransfer, NeedsAPageThatFillsAWindow) {
  GeometryInputs inputs = test::small_inputs();
  inputs.window = kBlock + 1;
  EXPECT_EQ(replay_refusal(Geometry(inputs)), std::nullopt);
  inputs.window = kBlock + 2;
  EXPECT_THAT(replay_refusal(Geometry(inputs)).value(), testing::HasSubstr("--block-size 16"));
  EXPECT_THROW(make_replay_transfer(Geometry(inputs), 3), Error);
}

}  // namespace
}  // namespace folio
