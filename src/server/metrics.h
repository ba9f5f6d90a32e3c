// Numbers for Prometheus: vLLM's names (protocol spec 5.11) and Folio's own. Touched by the I/O thread alone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/backend.h"
#include "server/http_server.h"

namespace folio {

// Counts of values up to each bound, as Prometheus has them.
class Histogram {
 public:
  // `bounds` ascend.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value, int64_t times = 1);
  // Appends the lines of one series; `labels` is "a=\"b\",c=\"d\"" without braces.
  void print(std::string_view name, std::string_view labels, std::string& out) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // of values above the bound before and up to this one; the last: above all
  double sum_ = 0;
  int64_t total_ = 0;
};

// What happened to the requests of the server. One value for the whole server.
struct ServerMetrics {
  explicit ServerMetrics(int64_t max_model_len);

  Histogram time_to_first_token, inter_token_latency, time_per_output_token;  // seconds, here and in the next line
  Histogram e2e_latency, queue_time, inference_time, prefill_time, decode_time;
  Histogram prompt_tokens, generation_tokens, max_tokens;  // of each choice
  Histogram choices, step_rows, computed_prompt_tokens;

  int64_t prompt_tokens_total = 0, cached_tokens_total = 0, generation_tokens_total = 0;
  int64_t approximate_tokens_total = 0;                    // cached tokens that were taken by encoder replay
  int64_t replay_rows_total = 0;                           // rows that ran again behind prefix hits
  std::array<int64_t, 4> finished{};                       // choices, by FinishedAs
  int64_t parser_dropped_bytes = 0;                        // text between calls that nobody gets
  std::map<std::pair<std::string, int>, int64_t> replies;  // by path and status
};

enum class FinishedAs : uint8_t { kStop, kLength, kAbort, kError };

// The text of /metrics, format 0.0.4. `active` and `waiting_here` are the sessions that are being read or answered.
struct MetricsSources {
  const ServerMetrics& server;
  EngineStats engine;
  HttpStats http;
  const ServedModel& model;
  int64_t sessions = 0;
  double uptime_seconds = 0;
};
std::string metrics_text(const MetricsSources& sources);

// The JSON of /debug/cache_stats: what the engine view of the web page polls.
std::string cache_stats_json(const MetricsSources& sources);
// The JSON of /debug/spec_stats.
std::string spec_stats_json(const EngineStats& engine);

}  // namespace folio
