#include "base/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"

namespace folio {

namespace {

constexpr int32_t kOpen = 1;
constexpr int32_t kInside = 2;
// About 50 us: longer than the gap between two ops of a step, short enough to leave the machine to others afterwards.
constexpr int kSpins = 3000;

// The processors that this process may use; none if the system does not say.
std::vector<int> processor_list() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> list;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) list.push_back(cpu);
    }
  }
  return list;
}

// Best effort: a pool works unpinned as well, only slower.
void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  static_cast<void>(pthread_setaffinity_np(pthread_self(), sizeof(set), &set));
}

}  // namespace

int allowed_processors() { return std::max(1, static_cast<int>(processor_list().size())); }

ThreadPool::ThreadPool(int threads) {
  FOLIO_CHECK(threads >= 0, threads);
  const std::vector<int> processors = processor_list();
  const int count = threads > 0 ? threads : std::max(1, static_cast<int>(processors.size()));
  for (int thread = 1; thread < count; ++thread) {
    const int cpu = processors.empty() ? -1 : processors[static_cast<size_t>(thread) % processors.size()];
    try {
      workers_.emplace_back([this, thread, cpu] {
        if (cpu >= 0) pin_to(cpu);
        work(thread);
      });
    } catch (const std::system_error& error) {
      stop();
      fail(ErrorCode::kOutOfMemory, "cannot start thread ", thread + 1, " of ", count, ": ", error.what(),
           ": lower --threads");
    }
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_pieces(int thread) {
  const int64_t count = count_;
  const int64_t grain = grain_;
  const int64_t share = share_;
  for (;;) {
    int64_t piece = grain;
    int64_t begin = 0;
    if (share == 0) {
      begin = next_.fetch_add(grain, std::memory_order_relaxed);
    } else {
      begin = next_.load(std::memory_order_relaxed);
      do {
        piece = std::max(grain, (count - begin) / share);
      } while (begin < count && !next_.compare_exchange_weak(begin, begin + piece, std::memory_order_relaxed));
    }
    if (begin >= count) return;
    invoke_(context_, begin, std::min(begin + piece, count), thread);
  }
}

void ThreadPool::run(int64_t count, int64_t grain, int64_t share, Invoke invoke, void* context) {
  if (count <= 0) return;
  FOLIO_CHECK(grain >= 1, grain);
  FOLIO_CHECK(!busy_.exchange(true, std::memory_order_acquire), "parallel_for inside parallel_for");
  invoke_ = invoke;
  context_ = context;
  count_ = count;
  grain_ = grain;
  share_ = share;
  next_.store(0, std::memory_order_relaxed);
  if (workers_.empty() || count <= grain) {
    take_pieces(0);
  } else {
    gate_.store(kOpen, std::memory_order_release);
    epoch_.fetch_add(1);
    // Sequentially consistent with the worker's ++sleepers_ followed by its look at epoch_: one of the two sees the
    // other.
    if (sleepers_.load() > 0) epoch_.notify_all();
    take_pieces(0);
    gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spins = 0; gate_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < kSpins) {
        _mm_pause();
      } else {
        sched_yield();
      }
    }
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::work(int thread) {
  int32_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++spins) _mm_pause();
    if (epoch_.load(std::memory_order_acquire) == seen) {
      sleepers_.fetch_add(1);
      epoch_.wait(seen);
      sleepers_.fetch_sub(1);
    }
    if (stop_.load(std::memory_order_acquire)) return;
    seen = epoch_.load(std::memory_order_acquire);
    int32_t gate = gate_.load(std::memory_order_acquire);
    bool inside = false;
    while ((gate & kOpen) != 0 && !inside) {
      inside = gate_.compare_exchange_weak(gate, gate + kInside, std::memory_order_acq_rel, std::memory_order_acquire);
    }
    if (!inside) continue;
    take_pieces(thread);
    gate_.fetch_sub(kInside, std::memory_order_release);
  }
}

}  // namespace folio
