// The engine without its thread: takes requests, runs steps, one after the other. What Engine runs, and what tests and
// the schedule fuzzer drive by hand.
#pragma once

#include <deque>

#include "engine/model_runner.h"
#include "engine/scheduler.h"

namespace folio {

class EngineCore {
 public:
  struct Stats {
    int64_t steps = 0;        // with rows
    double host_seconds = 0;  // in scheduling, building and taking back steps
    double run_seconds = 0;   // in the model and the copies, without the draft head
    double draft_seconds = 0;
    double verify_seconds = 0;  // of run_seconds: steps that verified drafts
  };

  // `runner` must outlive it, with room for the configuration's rows, requests and steps, and serves one core at a
  // time; what is unfinished when the core ends is forgotten, its sinks hear nothing more. Throws
  // Error(kInvalidArgument) with every reason why the configuration cannot work.
  EngineCore(ModelRunner& runner, const EngineConfig& config);

  // Throws Error(kInvalidArgument) where check_request does.
  void submit(RequestId id, const std::shared_ptr<const Request>& request);
  void cancel(RequestId id) { scheduler_.cancel(id); }

  // Schedules and runs one step, and takes back what is done. False when there was nothing to do.
  bool step();
  // Ends every request as kAbort and takes back what is in flight.
  void abort_all();
  bool empty() const { return scheduler_.empty() && in_flight_.empty(); }

  const Stats& stats() const { return stats_; }
  Scheduler& scheduler() { return scheduler_; }
  BlockManager& blocks() { return blocks_; }
  const EngineConfig& config() const { return config_; }

 private:
  struct InFlight {
    ScheduledStep step;
    std::vector<int32_t> sampled;
    std::vector<float> logprobs;
    std::vector<TopLogprob> top;
    std::vector<int32_t> committed;
    std::vector<int32_t> drafts;
    std::vector<float> confidences;
    std::vector<DraftCandidate> candidates;
  };
  void build(const ScheduledStep& step, StepBuilder& builder) const;
  // The span of a request in a step, without its rows.
  RequestSpan request_span(const ScheduledSpan& span) const;
  void add_rows(const ScheduledSpan& span, StepBuilder& builder) const;
  // The last known row and the drafts behind it: each is sampled under the rules that hold if the drafts before it are
  // accepted.
  void add_drafted_rows(const ScheduledSpan& span, StepBuilder& builder) const;
  void add_ratio(const RequestState& state, int32_t i, StepBuilder& builder) const;
  bool advance();
  void accept_oldest();
  StepOutputs run(const CopyPlan& copies, const Step* step, TraceSink* trace = nullptr);
  DraftOutputs draft(const Step& step);

  ModelRunner& runner_;
  EngineConfig config_;
  BlockManager blocks_;
  Scheduler scheduler_;
  std::deque<InFlight> in_flight_;
  int turn_ = 0;  // staging of the next step
  Stats stats_;
};

}  // namespace folio
