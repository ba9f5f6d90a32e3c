// The load of `folio bench serve`: requests of a workload against a server, and what came back when.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stream_client.h"

namespace folio {

enum class WorkloadKind : uint8_t {
  kRandom,        // prompts that share nothing
  kSharedPrefix,  // `groups` prefixes, each request one of them and words of its own
  kAgent,         // conversations of `turns` turns, each with all before it in its prompt
};

struct Workload {
  WorkloadKind kind = WorkloadKind::kRandom;
  int64_t prompt_tokens = 256;  // about; of one turn
  int64_t answer_tokens = 128;  // at most, and exactly where the server knows ignore_eos
  int64_t prefix_tokens = 1024;
  int64_t groups = 4;
  int64_t turns = 4;
  bool chat = true;  // /chat/completions; otherwise /completions
  bool ignore_eos = true;
  std::string model;
  uint64_t seed = 0;
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // more fields of every request
  double tokens_per_word = 1;                                       // measured by a first request
};

// How a level of load is made.
struct Level {
  int64_t concurrency = 1;  // requests at once; with a rate, at most
  double rate = 0;          // requests that arrive per second, at random (Poisson); 0: as fast as they end
  int64_t requests = 1;     // conversations, for the agent workload
};

struct ServeLoadOptions {
  std::string key;
  double timeout = 600;          // seconds without a byte
  double ramp = 0;               // seconds over which the first requests of a level are spread
  int64_t slow_readers = 0;      // connections beside the load that ask for a stream and never read it
  int64_t half_open = 0;         // connections beside the load that stop in the middle of a request
  int64_t slow_answer = 100000;  // tokens that a slow reader asks for
  ServerTrust trust;
};

// One answer. Times are seconds on the clock of base/clock.h.
struct TimedAnswer {
  double sent = 0;
  double ended = 0;
  std::vector<double> times;  // of the events that brought output
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  int64_t turn = 0;
  std::string error;  // why it failed; empty if it did not
};

struct LevelResult {
  Level level;
  double seconds = 0;  // from the first request to the last byte
  std::vector<TimedAnswer> answers;
  std::string disturbance;  // why a slow reader or half-open connection could not be made; empty if all were
};

// The server's first model. Throws Error(kUnavailable) when the server does not answer, Error(kInvalidArgument) when it
// refuses.
std::string first_model(const ServerAddress& server, const ServeLoadOptions& options);

// Tokens that the server counts for a word of a prompt. Throws as first_model().
double measure_tokens_per_word(const ServerAddress& server, const Workload& workload, const ServeLoadOptions& options);

// Runs one level. A request that fails is one of the answers; an interrupt ends the command (interrupt.h).
LevelResult run_level(const ServerAddress& server, const Workload& workload, const Level& level,
                      const ServeLoadOptions& options);

}  // namespace folio
