#include "cache/state_copies.h"

#include <gtest/gtest.h>

#include "cache/cache_test_util.h"

namespace folio {
namespace {

using test::SmallCache;
using Bytes = std::vector<std::byte>;

BlockHash name(uint64_t value) { return {value, ~value}; }

// Makes the pool hand out 1, 3, 5, ... and then 2, 4, ...
void interleave(PagePool& pages) {
  std::vector<int32_t> ids;
  while (const auto page = pages.allocate()) ids.push_back(*page);
  std::stable_sort(ids.begin(), ids.end(), [](int32_t a, int32_t b) { return a % 2 < b % 2; });
  std::sort(ids.begin(), std::find_if(ids.begin(), ids.end(), [](int32_t id) { return id % 2 == 1; }),
            std::greater<>());
  std::sort(std::find_if(ids.begin(), ids.end(), [](int32_t id) { return id % 2 == 1; }), ids.end(), std::greater<>());
  for (const int32_t id : ids) pages.release(id);
}

Bytes image_part(const SmallCache& cache, int32_t slot) {
  return SmallCache::bytes(cache.states.data(), cache.geometry.image_ranges(slot));
}

Bytes pending_part(const SmallCache& cache, int32_t slot) {
  const Bytes all = cache.slot(slot);
  return {all.begin() + std::ssize(image_part(cache, slot)), all.end()};
}

TEST(CopyPlan, StreamsBetweenRangesThatAreCutDifferently) {
  std::vector<std::byte> from(100), to(100), expected(100);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
  const std::vector<MemoryRange> sources = {{10, 7}, {50, 20}, {0, 3}}, targets = {{90, 5}, {20, 0}, {0, 12}, {30, 40}};
  std::vector<std::byte> stream;
  for (const auto& [offset, bytes] : sources) {
    stream.insert(stream.end(), from.begin() + offset, from.begin() + offset + bytes);
  }
  size_t next = 0;
  for (const auto& [offset, bytes] : targets) {
    for (int64_t i = 0; i < bytes && next < stream.size(); ++i) {
      expected[static_cast<size_t>(offset + i)] = stream[next++];
    }
  }
  CopyPlan plan;
  plan.stream(from.data(), sources, to.data(), targets);
  EXPECT_EQ(plan.bytes(), 30);
  EXPECT_EQ(plan.stage_ends(), std::vector<int32_t>{static_cast<int32_t>(plan.ranges().size())});
  plan.run(*make_reference_ops());
  EXPECT_EQ(to, expected);
  EXPECT_DEATH(plan.stream(from.data(), sources, to.data(), std::vector<MemoryRange>{{0, 29}}), "too small");
}

TEST(CopyPlan, AppendsStages) {
  std::byte memory[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  CopyPlan plan, tail;
  plan.add(memory, memory + 1, 1);
  tail.add(memory + 1, memory + 2, 1);
  tail.begin_stage();
  tail.begin_stage();
  tail.add(memory + 2, memory + 3, 1);
  plan.append(tail);
  EXPECT_EQ(plan.stage_ends(), (std::vector<int32_t>{1, 2, 3}));
  plan.run(*make_reference_ops());
  EXPECT_EQ(memory[3], std::byte{1});
  plan.clear();
  EXPECT_TRUE(plan.empty());
}

TEST(StateCopies, ImageRestoresIntoAnotherSlotByteForByte) {
  SmallCache cache(20);
  interleave(cache.pages);
  cache.scramble_slot(1, 1);
  cache.cursor(1) = {.position = 32, .last_token = 5, .history = {27, kDeadId, 19}};
  const Bytes stored = image_part(cache, 1);
  const auto id = cache.images.begin_store({name(1), true});
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(cache.images.image(*id).units, (std::vector<int32_t>{1, 3}));
  cache.copies.store(*id, 1);
  cache.run();
  // The slot goes on and another one is full of something else.
  cache.scramble_slot(1, 2);
  cache.scramble_slot(3, 3);
  const Bytes first_neighbour = cache.slot(2), pending = pending_part(cache, 3);
  cache.copies.restore(*id, 3, 0);
  EXPECT_EQ(cache.images.pins(*id), 1);
  cache.run();
  EXPECT_EQ(cache.images.pins(*id), 0);
  EXPECT_EQ(image_part(cache, 3), stored);
  EXPECT_EQ(pending_part(cache, 3), pending);  // left alone
  EXPECT_FALSE(pending.empty());
  EXPECT_EQ(cache.cursor(3).position, 32);
  EXPECT_EQ(cache.cursor(3).history[0], 27);
  EXPECT_EQ(cache.cursor(3).history[1], kDeadId);
  EXPECT_EQ(cache.cursor(3).history[2], 19);
  EXPECT_EQ(cache.slot(2), first_neighbour);
}

TEST(StateCopies, APrivateImageCarriesTheWholeEntryAndIsUsedUp) {
  SmallCache cache(20);
  interleave(cache.pages);
  cache.scramble_slot(0, 1);
  const Bytes stored = cache.slot(0);
  const int32_t tail = cache.pages.allocate().value();
  const auto id = cache.images.begin_private(42, {tail});
  cache.copies.store(*id, 0);
  cache.run();
  cache.scramble_slot(2, 2);
  EXPECT_DEATH(cache.copies.restore(*id, 2, 41), "request 41 restores the image of request 42");
  cache.copies.restore(*id, 2, 42);
  EXPECT_EQ(cache.images.take_kept_pages(*id), std::vector<int32_t>{tail});
  EXPECT_EQ(cache.images.find_private(42), std::nullopt);
  // It can be preempted again before the restore has completed.
  const auto second = cache.images.begin_private(42);
  EXPECT_TRUE(second.has_value());
  cache.run();
  EXPECT_EQ(cache.slot(2), stored);
  EXPECT_FALSE(cache.images.contains(*id));
  EXPECT_EQ(cache.pages.references(tail), 1);
}

// Every permutation with fixed points, chains and circles, against a copy of all sources.
TEST(StateCopies, MovesReadAllSourcesFirst) {
  const std::vector<std::vector<StateCopies::Move>> cases = {
      {{1, 0}, {0, 1}},                          // a swap
      {{0, 1}, {1, 2}, {2, 3}},                  // a chain
      {{0, 1}, {1, 2}, {2, 0}},                  // a circle
      {{0, 1}, {1, 0}, {2, 3}, {3, 2}},          // two circles
      {{0, 1}, {1, 0}, {1, 2}, {0, 3}, {4, 4}},  // a swap with further readers, and a move to itself
      {{0, 1}, {0, 2}, {0, 3}},                  // a fork
      {},
  };
  for (const auto& moves : cases) {
    SmallCache cache(4, 5);
    std::vector<Bytes> before;
    for (int32_t slot = 0; slot < 5; ++slot) {
      cache.scramble_slot(slot, static_cast<uint64_t>(slot) + 1);
      before.push_back(cache.slot(slot));
    }
    std::vector<Bytes> expected = before;
    for (const auto& move : moves) {
      expected[static_cast<size_t>(move.destination)] = before[static_cast<size_t>(move.source)];
    }
    cache.copies.move_slots(moves);
    cache.run();
    for (int32_t slot = 0; slot < 5; ++slot) EXPECT_EQ(cache.slot(slot), expected[static_cast<size_t>(slot)]);
  }
}

// A slot is stored, given to a fork, and restored into, all before one step: as if one after the other.
TEST(StateCopies, CopiesOfOneStepKeepTheirOrder) {
  SmallCache cache(20);
  for (int32_t slot = 0; slot < 4; ++slot) cache.scramble_slot(slot, static_cast<uint64_t>(slot) + 1);
  const Bytes first = cache.slot(0), second = cache.slot(1), old = image_part(cache, 3);
  const auto ready = cache.images.begin_store({name(1), true});
  cache.copies.store(*ready, 3);
  cache.run();

  const auto preempted = cache.images.begin_private(1);
  cache.copies.store(*preempted, 0);
  cache.copies.move_slots(std::vector<StateCopies::Move>{{1, 0}});
  cache.copies.restore(*ready, 1, 2);
  cache.scramble_slot(3, 9);
  cache.run();
  EXPECT_EQ(cache.slot(0), second);
  EXPECT_EQ(image_part(cache, 1), old);
  cache.copies.restore(*preempted, 2, 1);
  cache.run();
  EXPECT_EQ(cache.slot(2), first);
}

// What was queued before still reads what was there; what is queued behind it is not overwritten.
TEST(StateCopies, PoisonKeepsTheOrderOfTheCalls) {
  SmallCache cache(20);
  cache.scramble_slot(0, 1);
  const Bytes first = cache.slot(0);
  const auto image = cache.images.begin_private(1);
  cache.copies.store(*image, 0);
  cache.copies.poison_slot(0);
  const int32_t page = cache.pages.allocate().value(), fork = cache.pages.allocate().value();
  const auto page_bytes = [&](int32_t id) {
    return SmallCache::bytes(cache.pages.data(), cache.geometry.page_ranges(id));
  };
  const Bytes zeros = page_bytes(page);
  cache.copies.copy_pages(std::vector<StateCopies::Move>{{page, fork}});
  cache.copies.poison_page(page);
  cache.run();
  const auto poisoned = [](const Bytes& bytes) {
    return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0xff}; });
  };
  EXPECT_TRUE(poisoned(cache.slot(0)));
  EXPECT_TRUE(poisoned(page_bytes(page)));
  EXPECT_EQ(page_bytes(fork), zeros);
  cache.copies.poison_slot(0);
  cache.copies.restore(*image, 0, 1);
  cache.run();
  EXPECT_EQ(cache.slot(0), first);
}

// An image that is given up while its restore is queued may have its units taken by the next store of the same step.
TEST(StateCopies, UnitsThatAreReusedAtOnceAreReadFirst) {
  SmallCache cache(20);
  cache.scramble_slot(0, 1);
  cache.scramble_slot(1, 2);
  const Bytes first = image_part(cache, 0), second = image_part(cache, 1);
  const auto a = cache.images.begin_store({name(1), true});
  cache.copies.store(*a, 0);
  cache.run();
  cache.copies.restore(*a, 2, 0);
  const std::vector<int32_t> units = cache.images.image(*a).units;
  CopyPlan plan;
  cache.copies.drain(plan);
  // Told early, before the plan has run: allowed, since whatever comes later runs later.
  cache.copies.complete();
  cache.images.drop(*a);
  const auto b = cache.images.begin_store({name(2), true});
  std::vector<int32_t> reused = cache.images.image(*b).units;
  std::sort(reused.begin(), reused.end());
  EXPECT_EQ(reused, units);
  cache.copies.store(*b, 1);
  cache.copies.drain(plan);
  test::expect_independent_stages(plan);
  plan.run(*cache.ops);
  cache.copies.complete();
  EXPECT_EQ(image_part(cache, 2), first);
  cache.copies.restore(*b, 3, 0);
  cache.run();
  EXPECT_EQ(image_part(cache, 3), second);
}

TEST(StateCopies, IndependentCopiesShareAStage) {
  SmallCache cache(20);
  const auto a = cache.images.begin_store({name(1), true});
  const auto b = cache.images.begin_store({name(2), true});
  cache.copies.store(*a, 0);
  cache.copies.store(*b, 0);
  CopyPlan plan;
  cache.copies.drain(plan);
  EXPECT_EQ(plan.stage_ends().size(), 1u);
  cache.copies.complete();
  cache.copies.restore(*a, 0, 0);
  cache.copies.restore(*b, 1, 0);
  cache.copies.drain(plan);
  EXPECT_EQ(plan.stage_ends().size(), 2u);  // one for each drain
  cache.copies.complete();
  // A slot that is read and then written needs a stage of its own for the write; and so does one that is written twice.
  const auto c = cache.images.begin_store({name(3), true});
  plan.clear();
  cache.copies.store(*c, 0);
  cache.copies.restore(*a, 0, 0);
  cache.copies.restore(*b, 0, 0);
  cache.copies.drain(plan);
  EXPECT_EQ(plan.stage_ends().size(), 3u);
  test::expect_independent_stages(plan);
}

TEST(StateCopies, CopiesPagesForAFork) {
  SmallCache cache(6);
  const int32_t a = cache.pages.allocate().value(), b = cache.pages.allocate().value();
  std::fill_n(cache.pages.data() + a * cache.geometry.page_bytes(), cache.geometry.page_bytes(), std::byte{9});
  cache.copies.copy_pages(std::vector<StateCopies::Move>{{a, b}});
  cache.run();
  const auto page = SmallCache::bytes(cache.pages.data(), cache.geometry.page_ranges(b));
  EXPECT_EQ(std::count(page.begin(), page.end(), std::byte{9}), cache.geometry.page_bytes());
}

TEST(StateCopies, ForgetTakesBackRestoresOnly) {
  SmallCache cache(20);
  cache.scramble_slot(0, 1);
  const Bytes stored = image_part(cache, 0);
  const auto a = cache.images.begin_store({name(1), true});
  cache.copies.store(*a, 0);
  cache.copies.forget_slot(0);
  cache.run();
  cache.scramble_slot(2, 2);
  const Bytes before = cache.slot(2);
  cache.copies.restore(*a, 2, 0);
  cache.copies.restore(*a, 3, 0);
  cache.copies.forget_slot(2);
  EXPECT_EQ(cache.images.pins(*a), 1);
  cache.run();
  EXPECT_EQ(cache.slot(2), before);
  EXPECT_EQ(image_part(cache, 3), stored);
  EXPECT_EQ(cache.images.pins(*a), 0);
}

TEST(StateCopies, BatchesCompleteInOrder) {
  SmallCache cache(20);
  const auto a = cache.images.begin_store({name(1), true});
  cache.copies.store(*a, 0);
  CopyPlan plan;
  cache.copies.drain(plan);
  const auto b = cache.images.begin_store({name(2), true});
  cache.copies.store(*b, 0);
  cache.copies.drain(plan);
  cache.copies.complete();
  EXPECT_EQ(cache.images.state(*a), ImageState::kReady);
  EXPECT_EQ(cache.images.state(*b), ImageState::kCopying);
  cache.copies.complete();
  EXPECT_EQ(cache.images.state(*b), ImageState::kReady);
  EXPECT_DEATH(cache.copies.complete(), "nothing was drained");
}

TEST(StateCopiesDeathTest, MisuseStops) {
  SmallCache cache(20);
  const auto a = cache.images.begin_store({name(1), true});
  EXPECT_DEATH(cache.copies.store(*a, -1), "slot -1 of 4");
  EXPECT_DEATH(cache.copies.store(*a, 4), "slot 4 of 4");
  EXPECT_DEATH(cache.copies.restore(*a, 0, 0), "not ready");
  using Moves = std::vector<StateCopies::Move>;
  EXPECT_DEATH(cache.copies.move_slots(Moves{{0, 1}, {2, 1}}), "two moves to slot 1");
  const int32_t x = cache.pages.allocate().value(), y = cache.pages.allocate().value();
  EXPECT_DEATH(cache.copies.copy_pages(Moves{{x, y}, {y, x}}), "read and written");
  EXPECT_DEATH(cache.copies.copy_pages(Moves{{x, 19}}), "not in use");
}

}  // namespace
}  // namespace folio
