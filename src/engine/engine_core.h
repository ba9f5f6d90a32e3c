// The engine without its thread: takes requests, runs steps, one after the other. What Engine runs, and what tests and
// the schedule fuzzer drive by hand.
#pragma once

#include <deque>

#include "engine/model_runner.h"
#include "engine/scheduler.h"

namespace folio {

class EngineCore {
 public:
  // `runner` must outlive it, with room for the configuration's rows, requests and steps. Throws
  // Error(kInvalidArgument) with every reason why the configuration cannot work.
  EngineCore(ModelRunner& runner, const EngineConfig& config);

  // Throws Error(kInvalidArgument) for a request that makes no sense: empty prompt, unknown ids, bad parameters.
  void submit(RequestId id, std::shared_ptr<const Request> request);
  void cancel(RequestId id) { scheduler_.cancel(id); }

  // Schedules and runs one step, and takes back what is done. False when there was nothing to do.
  bool step();
  bool empty() const { return scheduler_.empty() && in_flight_.empty(); }

  Scheduler& scheduler() { return scheduler_; }
  BlockManager& blocks() { return blocks_; }
  const EngineConfig& config() const { return config_; }

 private:
  struct InFlight {
    ScheduledStep step;
    std::vector<int32_t> sampled;
    std::vector<float> logprobs;
  };
  void build(const ScheduledStep& step, StepBuilder& builder) const;
  void accept_oldest();

  ModelRunner& runner_;
  EngineConfig config_;
  BlockManager blocks_;
  Scheduler scheduler_;
  std::deque<InFlight> in_flight_;
  int turn_ = 0;  // staging of the next step
};

}  // namespace folio
