#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace folio {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 64, 5000}) {
        std::vector<int> visits(static_cast<size_t>(count), 0);
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_LE(end - begin, grain);
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, threads);
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (int visit : visits) EXPECT_EQ(visit, 1);
      }
    }
  }
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
      std::vector<int> visits(static_cast<size_t>(count), 0);
      pool.parallel_tasks(count, [&](int64_t task, int thread) {
        EXPECT_LT(thread, threads);
        ++visits[static_cast<size_t>(task)];
      });
      for (int visit : visits) EXPECT_EQ(visit, 1);
    }
  }
}

// What a job writes is visible to the caller and to the next job, whichever thread runs it.
TEST(ThreadPool, JobsAreOrdered) {
  ThreadPool pool(3);
  std::vector<int64_t> values(97, 0);
  for (int job = 0; job < 2000; ++job) {
    pool.parallel_for(97, 5, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
    });
  }
  for (int64_t i = 0; i < 97; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], 2000 * i);
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int64_t> sum{0};
    pool.parallel_for(50, 1, [&](int64_t begin, int64_t, int) { sum += begin; });
    EXPECT_EQ(sum, 49 * 50 / 2);
  }
}

TEST(ThreadPool, DefaultsToAllProcessors) {
  EXPECT_GE(allowed_processors(), 1);
  EXPECT_EQ(ThreadPool(0).threads(), allowed_processors());
}

TEST(ThreadPoolDeathTest, RefusesNestedCalls) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        pool.parallel_for(1, 1, [&](int64_t, int64_t, int) { pool.parallel_for(1, 1, [](int64_t, int64_t, int) {}); });
      },
      "parallel_for inside parallel_for");
}

}  // namespace
}  // namespace folio
