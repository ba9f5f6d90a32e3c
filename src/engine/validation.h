// Scenarios that every engine must get right on the model that it serves: what `folio validate` runs. Every answer is
// held against a solo run with the same replay plan and without speculation, bit for bit.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/geometry.h"
#include "model/model_files.h"

namespace folio {

struct CalibrationProfile;

struct ScenarioResult {
  std::string mode;      // "exact": both replays off, state images; "default": both on; of DSpark see validate_dspark
  std::string scenario;  // "prefix-fork"
  std::vector<std::string> failures;
  int64_t requests = 0;
  int64_t tokens_compared = 0;
  double seconds = 0;

  bool held() const { return failures.empty(); }
};

struct ValidationOptions {
  static constexpr int32_t kMaxNumSeqs = 4;  // requests at once, at most

  std::string isa;                                              // as RunnerOptions
  int threads = 1;                                              // of the steps
  CacheFormat cache_format;                                     // as RunnerOptions
  std::string only;                                             // scenarios whose name contains this
  int32_t num_speculative_tokens = 0;                           // of the engines; 0: no speculation
  std::shared_ptr<const CalibrationProfile> profile = nullptr;  // makes verification dynamic
};

// Runs all scenarios of scheduling, prefix cache, preemption, cancellation and replay, in exact and in default mode;
// `report` sees each result as it comes.
void validate_runtime(const ModelFiles& files, const ValidationOptions& options,
                      const std::function<void(const ScenarioResult&)>& report);

struct DsparkValidation {
  ValidationOptions options;   // num_speculative_tokens 0: every width from 1 to the model's block, one after the other
  std::optional<bool> packed;  // only this format of the main cache and the windows; none: both
};

// Runs all scenarios of speculating requests (spec runtime 12.2) with state images ("copy") and with replay ("replay"),
// in fp4 and in bf16 caches, for each width: mode "copy fp4 k=5". Throws Error(kInvalidArgument) for a model without a
// draft head or a width that it does not have.
void validate_dspark(const ModelFiles& files, const DsparkValidation& validation,
                     const std::function<void(const ScenarioResult&)>& report);

}  // namespace folio
