// One request alone under a given replay plan: what the schedule fuzzer and `folio validate runtime` hold the engine
// against. It knows the plan and the model, and neither scheduler nor block manager nor prefix cache.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/logit_lists.h"
#include "engine/model_runner.h"
#include "engine/request.h"

namespace folio {

// The bytes of one page, in the order of Geometry::page_ranges.
using PageBytes = std::vector<std::byte>;

PageBytes read_page(ModelRunner& runner, int32_t page);
void write_page(ModelRunner& runner, int32_t page, const PageBytes& bytes);

// Fills all pages and slots of a runner with bytes that are NaN in every format.
void poison_memory(ModelRunner& runner);

struct SoloRun {
  std::span<const int32_t> tokens;  // known when it begins
  int64_t prompt_length = 0;        // the first so many are the prompt
  ReplayPlan plan;
  std::vector<const PageBytes*> shared;  // pages of the positions before plan.resume, when encoder replay takes a hit
  const Request* request = nullptr;      // its sampling parameters, penalties and biases, and prompt rows
  int32_t choice = 0;
  TokenPolicy* policy = nullptr;          // for its mask; has accepted the known tokens behind the prompt
  int64_t samples = 1;                    // draws so many tokens, at least one,
  std::function<bool(int32_t id)> stops;  // or until this is true for one; called for each, the policy accepts it here
};

struct SoloResult {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<TopLogprob> top;  // as many for each as the request asks for
  std::vector<float> prompt_logprobs;
  std::vector<TopLogprob> prompt_top;
  std::vector<PageBytes> pages;  // of all positions that ran, the last page perhaps in part
};

// Whether a plan's hit was taken by encoder replay. A hit without it resumed from an image that equals the run's own
// state, so that the plan is that of a cold run.
inline bool replays_encoder(const ReplayPlan& plan) { return plan.start < plan.resume; }

class SoloRunner {
 public:
  // `options` but for the sizes: one slot, and steps and pages for a whole context.
  SoloRunner(const ModelFiles& files, RunnerOptions options);

  // All known rows from the plan's start on in one step, then a step per token. Memory that the run has not written
  // holds NaN patterns.
  SoloResult run(const SoloRun& run);
  ModelRunner& runner() { return runner_; }

 private:
  void build_first(const SoloRun& run, const LogitLists& lists, int32_t slot, std::span<const int32_t> pages);
  void sample(const SoloRun& run, const LogitLists& lists, int64_t index);

  ModelRunner runner_;
};

}  // namespace folio
