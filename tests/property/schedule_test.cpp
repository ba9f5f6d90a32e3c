// The engine under random schedules: every request ends exactly once with the tokens and log-probabilities, bit for
// bit, of solo runs with the same replay plans; nothing leaks, nothing hangs (engine/fuzz_schedule.h).
#include <gtest/gtest.h>

#include "engine/fuzz_schedule.h"
#include "support/small_model.h"

namespace folio {
namespace {

FuzzReport run_seeds(const std::string& preset, const FuzzOptions& options, uint64_t first, uint64_t count) {
  const ModelFiles files = ModelFiles::open(test::small_model(preset));
  ScheduleFuzzer fuzzer(files, options);
  FuzzReport report;
  for (uint64_t seed = first; seed < first + count && report.ok(); ++seed) report.add(fuzzer.run(seed));
  for (const auto* findings : {&report.differences, &report.leaks, &report.hangs}) {
    for (const std::string& finding : *findings) ADD_FAILURE() << preset << " " << finding;
  }
  for (const auto& [what, times] : report.met) std::printf("  %lld %s\n", static_cast<long long>(times), what.c_str());
  return report;
}

TEST(Schedule, Nano) { run_seeds("nano", {}, 1, 160); }

TEST(Schedule, Slots) { run_seeds("slots", {.isa = "", .max_model_len = 384}, 1000, 40); }

}  // namespace
}  // namespace folio
