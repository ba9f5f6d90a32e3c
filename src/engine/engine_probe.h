// An engine under observation: every request, run and page is recorded, and afterwards held against solo runs with the
// same replay plans. What the schedule fuzzer and the validation drive step by step.
#pragma once

#include "engine/engine_core.h"
#include "engine/fuzz_check.h"

namespace folio {

class EngineProbe {
 public:
  // `files` must outlive it. `ops` replaces the backend that the options name.
  EngineProbe(const ModelFiles& files, const RunnerOptions& options, const EngineConfig& config,
              std::unique_ptr<Ops> ops = nullptr);

  // The request with a sink of its own; returns its id: 0, 1, ...
  RequestId submit(Request request);
  void cancel(RequestId id);
  // One step; false when there was nothing to do.
  bool step() { return core_.step(); }
  // Steps until nothing is left. False if that does not come.
  bool drain(int most_steps = 4000);

  ModelRunner& runner() { return runner_; }
  EngineCore& core() { return core_; }
  const RunRecorder& recorder() const { return recorder_; }
  const std::vector<SentRequest>& sent() const { return sent_; }
  const RecordedAnswer& answer(RequestId id, int32_t choice = 0) const;
  // The choice as the engine sees it; null once it is forgotten.
  RequestState* state(RequestId id, int32_t choice = 0);
  // What a slot remembers, as the steps so far have left it.
  SlotCursor cursor(int32_t slot);

  // After drain(). What is still held, published pages that have changed; empties the prefix cache.
  std::vector<std::string> leaks();
  // All requests against solo runs on `solo`, which has the same geometry.
  AnswerCheck check(SoloRunner& solo);

 private:
  EngineConfig config_;
  ModelRunner runner_;
  EngineCore core_;
  RunRecorder recorder_;
  std::vector<SentRequest> sent_;
};

}  // namespace folio
