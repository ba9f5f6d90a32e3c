// folio make-checkpoint: a random checkpoint in the published format.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "checkpoint/presets.h"
#include "checkpoint/synthesize.h"
#include "commands.h"
#include "default_model.h"
#include "interrupt.h"
#include "json_line.h"
#include "model_flags.h"

namespace folio {
namespace {

struct MakeCheckpointFlags {
  SynthesizeOptions options;
  bool json = false;
};

// On a terminal. Ctrl-C ends the work here.
void show_progress(int64_t done, int64_t total) {
  check_interrupt();
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%5.1f %% of %.1f MB", 100.0 * static_cast<double>(done) / static_cast<double>(total),
               static_cast<double>(total) * 1e-6);
  if (done == total) std::fputc('\n', stderr);
}

void make_checkpoint(MakeCheckpointFlags& flags) {
  SynthesizeOptions& options = flags.options;
  options.compressed_vocab_size = count_compressed_ids;
  options.progress = show_progress;
  catch_interrupts();
  const double start = now_seconds();
  const SynthesizeResult result = synthesize_checkpoint(options);
  const double seconds = now_seconds() - start;
  if (flags.json) {
    const nlohmann::ordered_json report = {
        {"dir", options.out},    {"preset", options.preset}, {"seed", options.seed}, {"tensors", result.tensors},
        {"bytes", result.bytes}, {"shards", result.shards},  {"seconds", seconds}};
    std::printf("%s\n", json_line(report).c_str());
  } else {
    std::printf("%s: %lld tensors, %lld payload bytes in %d shards, %.2f s\n", options.out.c_str(),
                static_cast<long long>(result.tensors), static_cast<long long>(result.bytes), result.shards, seconds);
  }
}

}  // namespace

void add_make_checkpoint(CLI::App& app) {
  CLI::App* command = app.add_subcommand("make-checkpoint", "Write a random checkpoint in the published format");
  command->footer(
      "nano, slots, heads and mini take 4 to 41 MB; bench-cpu takes 2.3 GB and is for measuring. The bytes depend on "
      "the preset, the seed and --vision alone.");
  const auto flags = std::make_shared<MakeCheckpointFlags>();
  SynthesizeOptions& options = flags->options;
  command->add_option("--preset", options.preset, "What to write")->check(CLI::IsMember(preset_names()));
  command->add_option("--seed", options.seed, "Seed of the weights")->check(seed_check())->type_name("N");
  command->add_option("--out", options.out, "Directory of the checkpoint, made when it is not there")
      ->type_name("DIR")
      ->required();
  command->add_flag("--vision", options.vision, "With a small vision tower");
  command->add_flag("--force", options.force, "Replace the checkpoint in a directory that is not empty");
  command->add_option("--threads", options.threads, "Threads to use; 0: one per CPU")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { make_checkpoint(*flags); });
}

}  // namespace folio
