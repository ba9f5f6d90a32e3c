// The engine under random schedules: every request ends exactly once with the tokens and log-probabilities, bit for
// bit, of solo runs with the same replay plans; nothing leaks, nothing hangs (engine/fuzz_schedule.h). `folio fuzz
// schedule` runs as many as one likes.
#include <gtest/gtest.h>

#include "engine/fuzz_schedule.h"
#include "support/sanitized.h"
#include "support/small_model.h"

namespace folio {
namespace {

constexpr uint64_t kShare = test::kSanitized ? 10 : 1;

FuzzReport run_seeds(const std::string& preset, const FuzzOptions& options, uint64_t first, uint64_t count) {
  const ModelFiles files = ModelFiles::open(test::small_model(preset));
  ScheduleFuzzer fuzzer(files, options);
  FuzzReport report;
  for (uint64_t seed = first; seed < first + count / kShare && report.ok(); ++seed) report.add(fuzzer.run(seed));
  for (const auto* findings : {&report.differences, &report.leaks, &report.hangs}) {
    for (const std::string& finding : *findings) ADD_FAILURE() << preset << " " << finding;
  }
  for (const auto& [what, times] : report.met) std::printf("  %lld %s\n", static_cast<long long>(times), what.c_str());
  return report;
}

TEST(Schedule, Nano) {
  FuzzReport report = run_seeds("nano", {}, 1, 160);
  if (kShare > 1) return;
  // Schedules that meet none of this prove nothing.
  for (const char* what : {"hits by encoder replay",
                           "hits behind a hit",
                           "hits by image",
                           "hits of one block",
                           "hits of all but one token",
                           "images evicted",
                           "blocks evicted",
                           "preempted requests resumed from their state",
                           "kept states lost",
                           "runs that went on after a preemption",
                           "of these, under penalties",
                           "forced preemptions in a row",
                           "verifications",
                           "drafts accepted",
                           "drafts rejected",
                           "schedules with fixed verification",
                           "schedules with dynamic verification",
                           "blocks of drafts cut short",
                           "blocks of drafts left out",
                           "steps without drafting since it did not pay",
                           "siblings",
                           "prompt rows",
                           "stopped at a page border",
                           "cancelled while waiting",
                           "cancelled while preempted",
                           "cancelled between chunks",
                           "cancelled with a chunk in flight",
                           "cancelled with the first token in flight",
                           "cancelled in decode",
                           "cancelled when finished",
                           "refused"}) {
    EXPECT_GT(report.met[what], 0) << what;
  }
}

TEST(Schedule, Slots) { run_seeds("slots", {.isa = "", .max_model_len = 384}, 1000, 40); }

}  // namespace
}  // namespace folio
