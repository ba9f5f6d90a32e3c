// Many requests through an engine, for the measurements of folio eval.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "kept_answer.h"
#include "model/model_files.h"

namespace folio {

constexpr int32_t kEvalDrafts = 5;  // of a verification

// How an engine computes. By default every prompt runs in full and nothing is shared.
struct EvalEngineOptions {
  bool decoder_replay = false;
  bool encoder_replay = false;  // and the prefix cache, which a replay needs
  bool drafts = false;
  bool prompt_rows = false;     // requests want them
  int64_t longest = 0;          // tokens of a request, prompt and answer
  int32_t cached_requests = 0;  // whose pages the prefix cache has room for
};

class EvalEngine {
 public:
  // `runner` holds what the flags say of machine and formats, and how many requests run at once. Throws
  // Error(kInvalidArgument) for a model that cannot do what the options ask.
  EvalEngine(const ModelFiles& files, RunnerOptions runner, const EvalEngineOptions& options);

  // The answers, in the order of the requests, whose sinks it sets. Shows how many of `what` are done where stderr is a
  // terminal. Throws Error(kInvalidArgument) for a request that cannot run, and where check_interrupt does.
  std::vector<KeptAnswer> run(const std::vector<std::shared_ptr<Request>>& requests, const std::string& what);

  // What its verifications of drafts gave, over all runs.
  const SpeculationStats& speculation() { return core_.scheduler().stats().speculation; }
  ModelRunner& runner() { return runner_; }

 private:
  ModelRunner runner_;
  EngineCore core_;
  RequestId next_ = 0;
};

// Greedy, of at most `max_tokens` tokens.
std::shared_ptr<Request> greedy_request(std::vector<int32_t> prompt, int64_t max_tokens);

}  // namespace folio
