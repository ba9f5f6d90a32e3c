// A loaded model with its request memory, ready to run steps: checks what can be known, then allocates, then loads.
#pragma once

#include <memory>
#include <string>

#include "cache/copy_plan.h"
#include "cache/page_pool.h"
#include "cache/state_pool.h"
#include "engine/capacity.h"
#include "engine/step_builder.h"
#include "model/model_files.h"
#include "model/transformer.h"

namespace folio {

struct RunnerOptions {
  std::string isa;  // "" = best of this processor; "ref" = the reference ops
  int threads = 0;  // 0 = all processors
  CacheFormat cache_format;
  int32_t block_size = 128;     // tokens of a PAGE
  int64_t max_model_len = 0;    // tokens of one request; 0 = the model's limit
  int32_t max_num_seqs = 1;     // STATE slots
  int32_t pages = 0;            // PAGEs; 0 = what the budget leaves, at most max_num_seqs + cached_requests times those
                                // of a request of max_model_len
  int32_t cached_requests = 0;  // whose pages the prefix cache may fill
  int32_t max_rows = 2048;      // of a step
  int32_t max_head_rows = 1;    // of a step
  int32_t num_speculative_tokens = 0;  // tokens that the draft head proposes at a time; 0 = no draft head
  int64_t memory_budget = 0;           // bytes for weights, cache and activations; 0 = 0.9 of what is free
  bool trace = false;
};

// Tokens that one request may have: `requested`, or the model's limit when that is 0. Throws Error(kInvalidArgument)
// for more than the model's limit.
int64_t context_length(const Config& config, int64_t requested);

class ModelRunner {
 public:
  // Refuses what cannot work before a weight is read: Error(kInvalidArgument, kOutOfMemory) with every reason in one
  // message.
  // `files` must outlive the runner. `ops` replaces the backend that the options name.
  ModelRunner(const ModelFiles& files, const RunnerOptions& options, std::unique_ptr<Ops> ops = nullptr);

  const Config& config() const { return config_; }
  const Geometry& geometry() const { return geometry_; }
  const RunnerOptions& options() const { return options_; }
  int64_t max_model_len() const { return options_.max_model_len; }
  std::string ops_name() const { return ops_->name(); }
  const Capacity& capacity() const { return capacity_; }

  PagePool& pages() { return *pages_; }
  StatePool& states() { return *states_; }
  // Staging for `max steps in flight` steps; number 0 serves who runs one at a time.
  static constexpr int kBuilders = 2;
  StepBuilder& builder(int number = 0) { return *builders_[number]; }
  Device& device() { return *device_; }
  const Topology& topology() const { return topology_; }

  // Runs the step that builder(0) holds. The outputs are overwritten by the next step.
  StepOutputs run(TraceSink* trace = nullptr);
  // Runs copies, then a step.
  StepOutputs run(const CopyPlan& copies, const Step& step, TraceSink* trace = nullptr);
  void run(const CopyPlan& copies);
  // After a step: the drafts of the requests that it names.
  DraftOutputs draft(const Step& step, TraceSink* trace = nullptr);

 private:
  RunnerOptions options_;
  Config config_;
  Topology topology_;
  Geometry geometry_;
  Capacity capacity_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<PagePool> pages_;
  std::unique_ptr<StatePool> states_;
  CacheView cache_;
  std::unique_ptr<StepBuilder> builders_[kBuilders];
  std::unique_ptr<Transformer> transformer_;
};

}  // namespace folio
