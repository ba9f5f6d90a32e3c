// Threads for what would hold up the I/O thread: reading large requests, tokenising, compiling grammars.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace folio {

class Workers {
 public:
  explicit Workers(int threads);
  // Finishes what has begun and drops the rest.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Runs `work`, which must not throw, on one of the threads, first come, first served. From any thread.
  void post(std::function<void()> work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace folio
