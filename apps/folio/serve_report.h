// What `folio bench serve` found, as numbers, as JSON and as a picture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "serve_load.h"

namespace folio {

// A sample's mean and quantiles; all zero for an empty one. The p-quantile is the smallest value that at least a share
// p of the sample does not exceed.
struct Distribution {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Distribution distribution(std::vector<double> sample);

struct LevelReport {
  Level level;
  double seconds = 0;
  int64_t answered = 0, failed = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  // Seconds. first: until the first output (TTFT); per_token: from the first to the last output, by tokens after the
  // first (TPOT); between: from one event with output to the next (ITL); whole: until the end of the answer.
  Distribution first, per_token, between, whole;
  // Seconds that events came later than the earliest schedule that all events of their answer keep; only where the
  // interval of the server's events is known. Empty otherwise.
  Distribution late;
  std::vector<Distribution> first_of_turn;              // of the agent workload
  std::vector<std::pair<std::string, int64_t>> errors;  // what failed, how often
};

// `interval`: seconds between the events of one answer where the server keeps them, otherwise 0.
LevelReport summarise(const LevelResult& result, double interval);

nlohmann::ordered_json to_json(const LevelReport& report);

// An SVG of throughput and latencies over the levels; for light and dark surroundings.
std::string chart(const std::vector<LevelReport>& reports, const std::string& title);

}  // namespace folio
