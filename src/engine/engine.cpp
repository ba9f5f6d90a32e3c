#include "engine/engine.h"

#include <exception>

#include "base/error.h"

namespace folio {
namespace {

// Steps without anything to do, in a row, while requests are unfinished: more means that nothing will ever happen.
constexpr int kMaxIdleSteps = 1000;

}  // namespace

Engine::Engine(ModelRunner& runner, const EngineConfig& config, int64_t max_requests)
    : core_(runner, config), model_config_(runner.config()), max_requests_(max_requests) {
  report();
  thread_ = std::thread([this] { loop(); });
}

RequestId Engine::submit(std::shared_ptr<const Request> request) {
  FOLIO_CHECK(request != nullptr);
  check_request(*request, model_config_);
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) folio::fail(ErrorCode::kUnavailable, "the engine has failed: ", failure_);
  if (stopped_) folio::fail(ErrorCode::kUnavailable, "the engine has been shut down");
  if (accepted_ - stats_.finished + request->choices > max_requests_) {
    folio::fail(ErrorCode::kUnavailable, "the engine is full: ", accepted_ - stats_.finished, " of at most ",
                max_requests_, " requests are unfinished; try again later");
  }
  accepted_ += request->choices;
  const RequestId id = next_id_++;
  inbox_.submitted.emplace_back(id, std::move(request));
  work_.notify_one();
  return id;
}

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  if (id < 0 || id >= next_id_ || stopped_ || !failure_.empty()) return;
  inbox_.cancelled.insert(id);
  work_.notify_one();
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  for (const auto& [id, request] : inbox_.submitted) stats.waiting += request->choices;
  return stats;
}

void Engine::drain() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return accepted_ == stats_.finished; });
}

void Engine::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    inbox_.stop = true;
    work_.notify_one();
  }
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) thread_.join();
}

void Engine::loop() {
  try {
    for (int idle = 0;;) {
      take(core_.empty());
      read();
      if (taken_.stop) break;
      idle = core_.step() || core_.empty() ? 0 : idle + 1;
      if (idle > kMaxIdleSteps) throw Error(ErrorCode::kInternal, "the scheduler makes no progress");
      report();
    }
    core_.abort_all();
    report();
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("unknown exception");
  }
}

// Sleeps while there is nothing to do.
void Engine::take(bool idle) {
  std::unique_lock lock(mutex_);
  if (idle) work_.wait(lock, [&] { return !inbox_.empty(); });
  taken_ = std::exchange(inbox_, {});
}

void Engine::read() {
  for (; !taken_.submitted.empty(); taken_.submitted.pop_front()) {
    core_.submit(taken_.submitted.front().first, taken_.submitted.front().second);
  }
  for (const RequestId id : taken_.cancelled) core_.cancel(id);
}

void Engine::report() {
  const Scheduler::Stats& scheduled = core_.scheduler().stats();
  const PagePool& pages = core_.blocks().pages();
  const PrefixIndex::Stats& prefix = core_.blocks().index().stats();
  EngineStats stats;
  stats.waiting = core_.scheduler().waiting();
  stats.running = core_.scheduler().running();
  stats.finished = scheduled.finished;
  stats.aborted = scheduled.aborted;
  stats.refused = scheduled.refused;
  stats.preempted = scheduled.preempted;
  stats.resumed = core_.blocks().stats().resumed;
  stats.pages_used = pages.in_use();
  stats.pages_cached = pages.cached();
  stats.pages_total = pages.capacity();
  stats.slots_used = core_.blocks().slots_used();
  stats.slots_total = core_.blocks().slots();
  stats.prefix_queried_tokens = prefix.queried_tokens;
  stats.prefix_matched_tokens = prefix.matched_tokens;
  stats.prefix_hit_tokens = prefix.hit_tokens;
  stats.prefix_evicted_blocks = prefix.evicted;
  stats.images_kept = core_.blocks().images().stats().kept;
  stats.images_evicted = core_.blocks().images().stats().evicted;
  stats.prefill_rows = scheduled.prefill_rows;
  stats.decode_rows = scheduled.decode_rows;
  stats.steps = core_.stats().steps;
  stats.host_seconds = core_.stats().host_seconds;
  stats.run_seconds = core_.stats().run_seconds;
  stats.draft_seconds = core_.stats().draft_seconds;
  stats.verify_seconds = core_.stats().verify_seconds;
  stats.num_speculative_tokens = core_.config().num_speculative_tokens;
  stats.dynamic_verification = core_.config().profile != nullptr;
  stats.acceptance = core_.config().acceptance;
  stats.forced_acceptance_length = core_.config().forced_acceptance_length;
  stats.speculation = scheduled.speculation;
  const std::lock_guard lock(mutex_);
  stats_ = stats;
  if (accepted_ == stats_.finished) finished_.notify_all();
}

// Every request gets its finish: those that the core has, and those that it has not seen. What the core holds stays as
// it is; nothing runs any more.
void Engine::fail(const std::string& reason) {
  const std::string message = "the engine has failed: " + reason;
  Inbox inbox;
  {
    const std::lock_guard lock(mutex_);
    failure_ = reason;
    inbox = std::exchange(inbox_, {});
  }
  core_.scheduler().fail_all(message);
  for (const Inbox* unseen : {&taken_, &inbox}) {
    for (const auto& [id, request] : unseen->submitted) {
      const Usage usage{.prompt_tokens = std::ssize(request->prompt), .plans = {}};
      for (int32_t choice = 0; choice < request->choices; ++choice) {
        request->sink->on_finish(choice, FinishReason::kError, usage, message);
      }
    }
  }
  report();
  const std::lock_guard lock(mutex_);
  stats_.finished = accepted_;
  finished_.notify_all();
}

}  // namespace folio
