// Fork-join over a fixed set of threads, for ops that take microseconds: workers spin a bounded while between jobs and
// sleep on a futex after that.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace folio {

// Processors that this process may run on.
int allowed_processors();

// The caller of parallel_for works too, so a pool of n threads starts n - 1 workers, each pinned to one of the
// processors that the process may run on. One job at a time: parallel_for from inside a job, or from two threads at
// once, is refused by FOLIO_CHECK.
// Members that different threads write lie on cache lines of their own.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
class ThreadPool {
 public:
  // `threads` >= 1; 0 = allowed_processors(). Throws Error(kOutOfMemory) when the system starts no more threads.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end, thread) for pieces of at most `grain` indices that together cover [0, count) once, from any
  // of the threads (0 <= thread < threads()), and returns when all are done. Which thread gets which piece is not
  // defined. The body must not throw. Nothing is allocated.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        count, grain, 0,
        [](void* context, int64_t begin, int64_t end, int thread) {
          (*static_cast<Plain*>(context))(begin, end, thread);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

  // Calls body(task, thread) for every task in [0, count). A thread takes runs of neighbouring tasks, long ones first
  // and single ones at the end: neighbours share caches and pages, and nobody waits long for a late thread.
  template <typename Body>
  void parallel_tasks(int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        count, 1, 2 * threads(),
        [](void* context, int64_t begin, int64_t end, int thread) {
          for (int64_t task = begin; task < end; ++task) (*static_cast<Plain*>(context))(task, thread);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

 private:
  using Invoke = void (*)(void* context, int64_t begin, int64_t end, int thread);

  // Pieces are 1/share of what is left, at least `grain`; share 0: `grain`.
  void run(int64_t count, int64_t grain, int64_t share, Invoke invoke, void* context);
  void take_pieces(int thread);
  void work(int thread);
  void stop();

  std::vector<std::thread> workers_;

  // The job; written while no worker is inside, read by workers that entered.
  Invoke invoke_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  int64_t grain_ = 1;
  int64_t share_ = 0;
  std::atomic<bool> busy_{false};

  alignas(64) std::atomic<int64_t> next_{0};  // first index that nobody took
  // Bit 0: the job accepts workers. Above it: workers inside. A worker that comes late finds the job closed and is not
  // waited for, so a descheduled thread delays nobody.
  alignas(64) std::atomic<int32_t> gate_{0};
  alignas(64) std::atomic<int32_t> epoch_{0};  // counts jobs; workers wait for it to change
  std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace folio
