// Random load on a running engine: threads that submit, wait and cancel for as long as one likes. Every request must
// end once, one that is sent again and again must get the same answer, all pages and slots must be free at the end, and
// the memory of the process must stay flat. Bits are the business of engine/fuzz_schedule.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/model_files.h"

namespace folio {

struct LoadOptions {
  std::string isa;  // as RunnerOptions
  int clients = 8;
  double seconds = 600;
  uint64_t seed = 1;
  int64_t max_model_len = 256;  // tokens of one request
  int32_t num_speculative_tokens = 0;
};

struct LoadReport {
  double seconds = 0;
  int64_t requests = 0, choices = 0, tokens = 0;
  int64_t stopped = 0, cancelled = 0, refused = 0;  // choices
  int64_t preempted = 0, resumed = 0, prefix_hit_tokens = 0, steps = 0;
  // Bytes of the process, ten times a second after the first tenth of the time; none in sanitizer builds.
  std::vector<int64_t> resident;
  std::vector<std::string> findings;  // what was wrong

  bool ok() const { return findings.empty(); }
  int64_t median_resident() const;
  // Whether the last tenth of the samples needs no more than the first, within a twentieth and 4 MiB.
  bool flat() const;
};

// Loads an engine for options.seconds, or until `stop` is true; asked ten times a second.
LoadReport fuzz_load(const ModelFiles& files, const LoadOptions& options, const std::function<bool()>& stop);

}  // namespace folio
