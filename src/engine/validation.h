// Scenarios that every engine must get right on the model that it serves, in exact and in default mode: what
// `folio validate runtime` runs. Every answer is held against a solo run with the same replay plan, bit for bit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache/geometry.h"
#include "model/model_files.h"

namespace folio {

struct ScenarioResult {
  std::string mode;      // "exact": both replays off, state images; "default": both on
  std::string scenario;  // "prefix-fork"
  std::vector<std::string> failures;
  int64_t requests = 0;
  int64_t tokens_compared = 0;
  double seconds = 0;

  bool held() const { return failures.empty(); }
};

struct ValidationOptions {
  std::string isa;           // as RunnerOptions
  int threads = 1;           // of the steps
  CacheFormat cache_format;  // as RunnerOptions
  std::string only;          // scenarios whose name contains this
};

// Runs all scenarios; `report` sees each result as it comes.
void validate_runtime(const ModelFiles& files, const ValidationOptions& options,
                      const std::function<void(const ScenarioResult&)>& report);

}  // namespace folio
