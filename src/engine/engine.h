// The engine: a thread that runs requests, and the calls by which other threads give it work (src/engine/README.md).
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "engine/engine_core.h"

namespace folio {

// One moment of an engine, between two steps. Requests are counted by their choices.
struct EngineStats {
  int64_t waiting = 0, running = 0;  // waiting: for a slot or pages, or for the next step to begin
  int64_t finished = 0;              // ever, those below included
  int64_t aborted = 0, refused = 0;
  int64_t preempted = 0;  // times that a request lost its place
  int64_t resumed = 0;    // of these, times that it went on from an image of its state
  int32_t pages_used = 0, pages_cached = 0, pages_total = 0;
  int32_t slots_used = 0, slots_total = 0;
  int64_t prefix_queried_tokens = 0;  // of admitted requests
  int64_t prefix_matched_tokens = 0;  // of these, in published pages
  int64_t prefix_hit_tokens = 0;      // of these, not computed again; the others were lost for want of the state there
  int64_t prefix_evicted_blocks = 0;  // published, and given up for their pages
  int64_t images_kept = 0, images_evicted = 0;
  int64_t prefill_rows = 0, decode_rows = 0;
  int64_t steps = 0;
  double host_seconds = 0;  // of the engine in all steps, beside the model
  double run_seconds = 0;   // of the model, without the draft head
  double draft_seconds = 0;
  double verify_seconds = 0;           // of run_seconds: steps that verified drafts
  int32_t num_speculative_tokens = 0;  // of the configuration
  bool dynamic_verification = false;   // it has a calibration profile
  Acceptance acceptance = Acceptance::kMatch;
  double forced_acceptance_length = 0;  // 0: not forced
  SpeculationStats speculation;
  double host_seconds_per_step() const { return steps > 0 ? host_seconds / static_cast<double>(steps) : 0; }
};

class Engine {
 public:
  // Choices that are accepted and not finished; what bounds the queues.
  static constexpr int64_t kDefaultMaxRequests = 4096;

  // Starts the thread. `runner` must outlive the engine and is its own until shutdown() has returned. Throws
  // Error(kInvalidArgument) with every reason why the configuration cannot work.
  Engine(ModelRunner& runner, const EngineConfig& config, int64_t max_requests = kDefaultMaxRequests);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { shutdown(); }

  // All below may be called from any thread; submit() and cancel() return without waiting for a step.

  // Takes a request; its sink gets one finish per choice, whatever happens. Nobody may change the request any more.
  // Throws, and then the sink hears nothing: Error(kInvalidArgument) where check_request does, Error(kUnavailable) when
  // the engine is full, has failed or is shut down.
  RequestId submit(std::shared_ptr<const Request> request);
  // The request's choices that are not finished end as kAbort, at the latest after the steps in flight. No effect on an
  // unknown or finished request.
  void cancel(RequestId id);
  EngineStats stats() const;
  // Returns when all requests accepted so far, and those accepted meanwhile, have finished.
  void drain();
  // Ends everything unfinished as kAbort and the thread. Returns when that is done. Again: no effect.
  void shutdown();

 private:
  // What other threads have asked for since the engine looked last.
  struct Inbox {
    std::deque<std::pair<RequestId, std::shared_ptr<const Request>>> submitted;
    std::set<RequestId> cancelled;
    bool stop = false;
    bool empty() const { return submitted.empty() && cancelled.empty() && !stop; }
  };

  void loop();
  void take(bool idle);
  void read();
  void report();
  void fail(const std::string& reason);

  // The thread's alone.
  EngineCore core_;
  Inbox taken_;

  const Config& model_config_;
  const int64_t max_requests_;

  mutable std::mutex mutex_;          // guards all below; never held during a step or a call of a sink
  std::condition_variable work_;      // the inbox is not empty
  std::condition_variable finished_;  // accepted_ == stats_.finished
  Inbox inbox_;
  RequestId next_id_ = 0;
  int64_t accepted_ = 0;  // choices
  EngineStats stats_;
  bool stopped_ = false;
  std::string failure_;  // why the thread has ended by itself

  std::mutex joining_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace folio
