// Random schedules: arrivals, shared prefixes, chunk budgets, small pages and tiny pools, cancels, preemptions, state
// images, mixed exact and default requests, one or two steps in flight. Every run of every request must have the bits
// of a solo run under the same replay plan; every request ends exactly once; nothing leaks and nothing hangs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/geometry.h"
#include "model/model_files.h"

namespace folio {

class SoloRunner;

struct FuzzReport {
  int64_t cases = 0;
  std::vector<std::string> differences;  // each begins with "seed N"
  std::vector<std::string> leaks;
  std::vector<std::string> hangs;
  std::map<std::string, int64_t> met;  // how often the schedules came to the places that matter

  bool ok() const { return differences.empty() && leaks.empty() && hangs.empty(); }
  void add(const FuzzReport& other);
};

struct FuzzOptions {
  std::string isa;              // as RunnerOptions
  int64_t max_model_len = 256;  // tokens of one request; the longest prompts are a little longer
  // Drafts of all schedules, 0 being no speculation, else drawn for each: none, or one to the model's block.
  std::optional<int32_t> num_speculative_tokens = std::nullopt;
};

class ScheduleFuzzer {
 public:
  // `files` must outlive it.
  ScheduleFuzzer(const ModelFiles& files, const FuzzOptions& options = {});
  ~ScheduleFuzzer();

  // The schedule of one seed. The same seed gives the same schedule.
  FuzzReport run(uint64_t seed);

 private:
  SoloRunner& solo(int32_t block_size, CacheFormat format);

  const ModelFiles& files_;
  FuzzOptions options_;
  std::map<std::pair<int32_t, CacheFormat>, std::unique_ptr<SoloRunner>> solos_;
};

}  // namespace folio
