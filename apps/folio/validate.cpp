// folio validate: does the engine do what it promises on this model and this machine?
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "engine/validation.h"
#include "model_flags.h"

namespace folio {
namespace {

struct Flags {
  ModelFlags model;
  std::string only;
  bool json = false;
};

void validate(const Flags& flags) {
  const RunnerOptions runner = runner_options(flags.model);
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  const ValidationOptions options{
      .isa = runner.isa, .threads = runner.threads, .cache_format = runner.cache_format, .only = flags.only};
  note_default_model(flags.model);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  int64_t held = 0, failed = 0;
  validate_runtime(files, options, [&](const ScenarioResult& result) {
    ++(result.held() ? held : failed);
    if (flags.json) {
      json.push_back({{"mode", result.mode},
                      {"scenario", result.scenario},
                      {"held", result.held()},
                      {"failures", result.failures},
                      {"requests", result.requests},
                      {"tokens_compared", result.tokens_compared},
                      {"seconds", result.seconds}});
      return;
    }
    std::printf("%-6s  %-7s  %-24s  %3lld requests, %4lld tokens equal to solo runs, %.2f s\n",
                result.held() ? "ok" : "FAILED", result.mode.c_str(), result.scenario.c_str(),
                static_cast<long long>(result.requests), static_cast<long long>(result.tokens_compared),
                result.seconds);
    for (const std::string& failure : result.failures) std::printf("        %s\n", failure.c_str());
    std::fflush(stdout);
  });
  if (held + failed == 0) fail(ErrorCode::kInvalidArgument, "--only ", flags.only, ": no scenario has such a name");
  if (flags.json) {
    std::printf("%s\n", json.dump(1).c_str());
  } else {
    std::printf("%lld scenarios held, %lld failed\n", static_cast<long long>(held), static_cast<long long>(failed));
  }
  if (failed > 0) throw CLI::RuntimeError(1);
}

}  // namespace

void add_validate(CLI::App& app) {
  CLI::App* validate_command = app.add_subcommand("validate", "Check what the engine promises, on this model");
  validate_command->require_subcommand(1);
  CLI::App* command =
      validate_command->add_subcommand("runtime", "Scheduling, prefix cache, preemption, cancellation, replay");
  command->footer(
      "Plays every scenario in exact mode (both replays off, state images) and in default mode (both on), with one and "
      "two steps in flight. Every answer must have the bits of a solo run with the same replay plan. Exit status 0 "
      "only "
      "if all scenarios hold. Contexts are twelve pages, so a small model takes seconds and a large one as long as it "
      "takes to run a few hundred thousand tokens.");
  const auto flags = std::make_shared<Flags>();
  command->add_option("--only", flags->only, "Scenarios whose name contains this")->type_name("TEXT");
  command->add_flag("--json", flags->json, "Print one JSON array");
  command
      ->add_option("--model", flags->model.model,
                   "Checkpoint directory (default: $FOLIO_MODEL, else the built-in model)")
      ->type_name("DIR");
  command->add_option("--isa", flags->model.runner.isa, "CPU kernels, as in folio run")->type_name("NAME");
  command->add_option("--threads", flags->model.runner.threads, "CPU threads; 0: one per CPU")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  add_cache_format_flags(*command, flags->model);
  command->callback([flags] { validate(*flags); });
}

}  // namespace folio
