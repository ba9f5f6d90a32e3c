// folio validate: does the engine do what it promises on this model and this machine?
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "engine/validation.h"
#include "engine_flags.h"
#include "model_flags.h"

namespace folio {
namespace {

struct ValidateFlags {
  ModelFlags model;
  SpeculationFlags speculation;
  CLI::Option* cache_format_option = nullptr;  // --kv-cache-dtype
  std::string only;
  bool json = false;
};

// Prints results as they come, or all of them at the end as JSON.
class Printer {
 public:
  explicit Printer(const ValidateFlags& flags) : flags_(flags) {}

  void operator()(const ScenarioResult& result) {
    ++(result.held() ? held_ : failed_);
    if (flags_.json) {
      json_.push_back({{"mode", result.mode},
                       {"scenario", result.scenario},
                       {"held", result.held()},
                       {"failures", result.failures},
                       {"requests", result.requests},
                       {"tokens_compared", result.tokens_compared},
                       {"seconds", result.seconds}});
      return;
    }
    std::printf("%-6s  %-15s  %-30s  %3lld requests, %4lld tokens equal to solo runs, %.2f s\n",
                result.held() ? "ok" : "FAILED", result.mode.c_str(), result.scenario.c_str(),
                static_cast<long long>(result.requests), static_cast<long long>(result.tokens_compared),
                result.seconds);
    for (const std::string& failure : result.failures) std::printf("        %s\n", failure.c_str());
    std::fflush(stdout);
  }

  // Exit status 1 if a scenario failed.
  void finish() {
    if (held_ + failed_ == 0) {
      fail(ErrorCode::kInvalidArgument, "--only ", flags_.only, ": no scenario has such a name");
    }
    if (flags_.json) {
      std::printf("%s\n", json_.dump(1).c_str());
    } else {
      std::printf("%lld scenarios held, %lld failed\n", static_cast<long long>(held_), static_cast<long long>(failed_));
    }
    if (failed_ > 0) throw CLI::RuntimeError(1);
  }

 private:
  const ValidateFlags& flags_;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::array();
  int64_t held_ = 0, failed_ = 0;
};

ValidationOptions validation_options(const ValidateFlags& flags, int32_t num_speculative_tokens) {
  const RunnerOptions runner = runner_options(flags.model);
  return {.isa = runner.isa,
          .threads = runner.threads,
          .cache_format = runner.cache_format,
          .only = flags.only,
          .num_speculative_tokens = num_speculative_tokens,
          .profile = nullptr};
}

void run_runtime(const ValidateFlags& flags) {
  ValidationOptions options = validation_options(flags, speculative_tokens(flags.speculation));
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  RunnerOptions runner = runner_options(flags.model);
  runner.num_speculative_tokens = options.num_speculative_tokens;
  runner.max_num_seqs = ValidationOptions::kMaxNumSeqs;
  options.profile = load_profile(flags.speculation, files, runner, {.max_num_seqs = "the number of the scenarios"});
  note_default_model(flags.model);
  Printer printer(flags);
  validate_runtime(files, options, std::ref(printer));
  printer.finish();
}

void run_dspark(const ValidateFlags& flags) {
  DsparkValidation validation{
      .options = validation_options(flags, *flags.speculation.num_tokens_option ? flags.speculation.num_tokens : 0),
      .packed = std::nullopt};
  if (*flags.cache_format_option) validation.packed = validation.options.cache_format.packed;
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  note_default_model(flags.model);
  Printer printer(flags);
  validate_dspark(files, validation, std::ref(printer));
  printer.finish();
}

void add_flags(CLI::App& command, ValidateFlags& flags) {
  command.add_option("--only", flags.only, "Scenarios whose name contains this")->type_name("TEXT");
  command.add_flag("--json", flags.json, "Print one JSON array");
  command
      .add_option("--model", flags.model.model, "Checkpoint directory (default: $FOLIO_MODEL, else the built-in model)")
      ->type_name("DIR");
  command.add_option("--isa", flags.model.runner.isa, "CPU kernels, as in folio run")->type_name("NAME");
  command.add_option("--threads", flags.model.runner.threads, "CPU threads; 0: one per CPU")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  add_cache_format_flags(command, flags.model);
  flags.cache_format_option = command.get_option("--kv-cache-dtype");
}

void add_runtime(CLI::App& validate) {
  CLI::App* command = validate.add_subcommand("runtime", "Scheduling, prefix cache, preemption, cancellation, replay");
  command->footer(
      "Plays every scenario in exact mode (both replays off, state images) and in default mode (both on), with one and "
      "two steps in flight. Every answer must have the bits of a solo run with the same replay plan, without "
      "speculation; so there are no flags of acceptance, by which answers are others. Exit status 0 only if all "
      "scenarios hold. Contexts are twelve pages, so a small model takes "
      "seconds and a large one as long as it takes to run a few hundred thousand tokens.");
  const auto flags = std::make_shared<ValidateFlags>();
  add_flags(*command, *flags);
  add_draft_flags(*command, flags->speculation);
  add_profile_flag(*command, flags->speculation);
  command->callback([flags] { run_runtime(*flags); });
}

void add_dspark(CLI::App& validate) {
  CLI::App* command = validate.add_subcommand(
      "dspark", "Speculation: verifications of every kind, preemption, abort, forks, stops inside a block");
  command->footer(
      "Plays every scenario with state images (copy) and with bounded replay (replay), with fp4 and bf16 main caches, "
      "for blocks of 1 to 5 drafts, with one and two steps in flight. Every answer must have the bits of a solo run "
      "without speculation. Scenario accept-counts meets every number of accepted drafts at every position modulo "
      "window, page and ratio. Exit status 0 only if all scenarios hold. --kv-cache-dtype and --num-speculative-tokens "
      "leave out the other formats and widths.\n"
      "Example: folio make-checkpoint --preset nano --out /tmp/nano && folio validate dspark --model /tmp/nano");
  const auto flags = std::make_shared<ValidateFlags>();
  add_flags(*command, *flags);
  flags->speculation.num_tokens_option =
      command->add_option("--num-speculative-tokens", flags->speculation.num_tokens, "Only blocks of so many drafts")
          ->type_name("N")
          ->check(CLI::Range(1, 64))
          ->default_str("1 to 5");
  command->callback([flags] { run_dspark(*flags); });
}

}  // namespace

void add_validate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("validate", "Check what the engine promises, on this model");
  command->require_subcommand(1);
  add_runtime(*command);
  add_dspark(*command);
}

}  // namespace folio
