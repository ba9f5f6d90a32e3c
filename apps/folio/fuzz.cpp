// folio fuzz: random work for the engine: schedules held against solo runs, and load for as long as one likes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "commands.h"
#include "engine/fuzz_load.h"
#include "engine/fuzz_schedule.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "model_flags.h"

namespace folio {
namespace {

constexpr size_t kMostFindings = 100;

struct FuzzFlags {
  ModelFlags model;
  SpeculationFlags speculation;  // method and number of tokens
  FuzzOptions options;
  uint64_t seed = 1;
  uint64_t cases = 1000;
  double seconds = 0;
  bool json = false;
};

// A broken invariant ends the process: which seed did it must be known all the same.
char running_seed[64];

void name_seed(int number) {
  if (write(STDERR_FILENO, running_seed, strlen(running_seed)) < 0) {
  }
  signal(number, SIG_DFL);
  raise(number);
}

size_t findings(const FuzzReport& report) {
  return report.differences.size() + report.leaks.size() + report.hangs.size();
}

void print_findings(const FuzzReport& report) {
  const auto print = [](const char* kind, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) std::printf("%s: %s\n", kind, line.c_str());
  };
  print("difference", report.differences);
  print("leak", report.leaks);
  print("hang", report.hangs);
}

void print_json(const FuzzFlags& flags, const FuzzReport& report, double seconds) {
  const nlohmann::ordered_json json = {
      {"seed", flags.seed},    {"cases", report.cases}, {"seconds", seconds}, {"differences", report.differences},
      {"leaks", report.leaks}, {"hangs", report.hangs}, {"met", report.met}};
  std::printf("%s\n", json.dump(1).c_str());
}

void print_summary(const FuzzReport& report, double seconds) {
  for (const auto& [what, times] : report.met) std::printf("%10lld %s\n", static_cast<long long>(times), what.c_str());
  std::printf("%lld schedules in %.0f s: %zu differences, %zu leaks, %zu hangs\n", static_cast<long long>(report.cases),
              seconds, report.differences.size(), report.leaks.size(), report.hangs.size());
}

void fuzz_schedule(const FuzzFlags& flags) {
  runner_options(flags.model);  // refuses what this build cannot do
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  FuzzOptions options = flags.options;
  options.isa = flags.model.runner.isa;
  if (*flags.speculation.method_option || *flags.speculation.num_tokens_option) {
    options.num_speculative_tokens = speculative_tokens(flags.speculation);
    check_speculation(*options.num_speculative_tokens, files.checkpoint.config());
  }
  options.max_model_len = std::min(options.max_model_len, context_length(files.checkpoint.config(), 0));
  ScheduleFuzzer fuzzer(files, options);

  catch_interrupts();
  for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) signal(number, name_seed);
  const bool progress = isatty(STDERR_FILENO) != 0;
  const double start = now_seconds();
  double shown = start;
  FuzzReport report;
  note_default_model(flags.model);
  for (uint64_t i = 0; i < flags.cases && !interrupted() && findings(report) < kMostFindings; ++i) {
    if (flags.seconds > 0 && now_seconds() - start > flags.seconds) break;
    const uint64_t seed = flags.seed + i;
    std::snprintf(running_seed, sizeof running_seed, "folio: seed %llu ended the process\n",
                  static_cast<unsigned long long>(seed));
    const FuzzReport one = fuzzer.run(seed);
    report.add(one);
    if (!flags.json) print_findings(one);
    std::fflush(stdout);
    if (!progress || now_seconds() - shown < 0.2) continue;
    shown = now_seconds();
    std::fprintf(stderr, "\r%lld of %llu schedules, %zu findings ", static_cast<long long>(report.cases),
                 static_cast<unsigned long long>(flags.cases), findings(report));
  }
  if (progress) std::fputc('\n', stderr);
  const double seconds = now_seconds() - start;
  flags.json ? print_json(flags, report, seconds) : print_summary(report, seconds);
  if (!report.ok()) throw CLI::RuntimeError(1);
  check_interrupt();
}

struct LoadFlags {
  ModelFlags model;
  SpeculationFlags speculation;  // method and number of tokens
  LoadOptions options;
  bool json = false;
};

void print_load(const LoadReport& report) {
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (const std::string& finding : report.findings) std::printf("finding: %s\n", finding.c_str());
  std::printf("%lld requests, %lld answers, %lld tokens, %lld steps in %.0f s\n",
              static_cast<long long>(report.requests), static_cast<long long>(report.choices),
              static_cast<long long>(report.tokens), static_cast<long long>(report.steps), report.seconds);
  std::printf("%lld stopped, %lld cancelled, %lld refused, %lld preempted, %lld resumed from their state\n",
              static_cast<long long>(report.stopped), static_cast<long long>(report.cancelled),
              static_cast<long long>(report.refused), static_cast<long long>(report.preempted),
              static_cast<long long>(report.resumed));
  if (report.resident.empty()) return;
  std::printf("memory: first %.1f MiB, median %.1f MiB, last %.1f MiB: %s\n", mib(report.resident.front()),
              mib(report.median_resident()), mib(report.resident.back()), report.flat() ? "flat" : "grows");
}

void print_load_json(const LoadReport& report) {
  nlohmann::ordered_json json = {
      {"seconds", report.seconds},     {"requests", report.requests}, {"choices", report.choices},
      {"tokens", report.tokens},       {"steps", report.steps},       {"stopped", report.stopped},
      {"cancelled", report.cancelled}, {"refused", report.refused},   {"preempted", report.preempted},
      {"resumed", report.resumed},     {"findings", report.findings}};
  if (!report.resident.empty()) {
    json["resident_bytes"] = {{"first", report.resident.front()},
                              {"median", report.median_resident()},
                              {"last", report.resident.back()},
                              {"flat", report.flat()}};
  }
  std::printf("%s\n", json.dump(1).c_str());
}

void load(const LoadFlags& flags) {
  runner_options(flags.model);  // refuses what this build cannot do
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  LoadOptions options = flags.options;
  options.isa = flags.model.runner.isa;
  options.num_speculative_tokens = speculative_tokens(flags.speculation);
  check_speculation(options.num_speculative_tokens, files.checkpoint.config());
  options.max_model_len = std::min(options.max_model_len, context_length(files.checkpoint.config(), 0));
  note_default_model(flags.model);
  catch_interrupts();
  const LoadReport report = fuzz_load(files, options, interrupted);
  flags.json ? print_load_json(report) : print_load(report);
  if (!report.ok()) throw CLI::RuntimeError(1);
  check_interrupt();
}

void add_load(CLI::App& fuzz) {
  CLI::App* command = fuzz.add_subcommand("load", "Random requests to a running engine; its memory must stay flat");
  command->footer(
      "Clients submit, wait and cancel, each in a thread of its own. Every request must end once, one that is sent "
      "again and again must get the same answer, all pages and slots must be free at the end, and the resident memory "
      "of the last tenth of the time must not exceed that of the first (after a tenth to warm up) by more than 5 % and "
      "4 MiB.");
  const auto flags = std::make_shared<LoadFlags>();
  command->add_option("--seed", flags->options.seed, "Seed of the requests")->type_name("N")->check(seed_check());
  command->add_option("--time", flags->options.seconds, "Seconds")->type_name("S")->check(CLI::Range(0.1, 1e6));
  command->add_option("--clients", flags->options.clients, "Threads that submit and cancel")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  command->add_option("--max-model-len", flags->options.max_model_len, "Tokens of one request")
      ->type_name("N")
      ->check(CLI::Range(64, 1 << 16));
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_draft_flags(*command, flags->speculation);
  command
      ->add_option("--model", flags->model.model,
                   "Checkpoint directory (default: $FOLIO_MODEL, else the built-in model)")
      ->type_name("DIR");
  command->add_option("--isa", flags->model.runner.isa, "CPU kernels, as in folio run")->type_name("NAME");
  command->callback([flags] { load(*flags); });
}

}  // namespace

void add_fuzz(CLI::App& app) {
  CLI::App* fuzz = app.add_subcommand("fuzz", "Look for schedules and loads under which the engine errs");
  fuzz->require_subcommand(1);
  add_load(*fuzz);
  CLI::App* command = fuzz->add_subcommand("schedule", "Random schedules against solo runs, bit for bit");
  command->footer(
      "Each seed is one schedule: requests that share prefixes arrive, are cancelled and preempted, in small pages and "
      "tiny pools, with and without replay, one or two steps in flight. Every token and log-probability must have the "
      "bits of a solo run with the same replay plan, every published page its bytes; nothing may leak or hang. Two of "
      "three schedules speculate, half of these by a made-up profile, unless --speculative says which. A "
      "finding names its seed: --seed N --cases 1 repeats it. Small random checkpoints are best (folio "
      "make-checkpoint --preset nano).");
  const auto flags = std::make_shared<FuzzFlags>();
  command->add_option("--seed", flags->seed, "Seed of the first schedule; the next has the next number")
      ->type_name("N")
      ->check(seed_check());
  command->add_option("--cases", flags->cases, "Schedules")->type_name("N")->check(CLI::Range(1ull, 1ull << 40));
  command->add_option("--time", flags->seconds, "Stop after so many seconds; 0: after --cases")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e9));
  command->add_option("--max-model-len", flags->options.max_model_len, "Tokens of one request")
      ->type_name("N")
      ->check(CLI::Range(64, 1 << 16));
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_draft_flags(*command, flags->speculation);
  command
      ->add_option("--model", flags->model.model,
                   "Checkpoint directory (default: $FOLIO_MODEL, else the built-in model)")
      ->type_name("DIR");
  command->add_option("--isa", flags->model.runner.isa, "CPU kernels, as in folio run")->type_name("NAME");
  command->callback([flags] { fuzz_schedule(*flags); });
}

}  // namespace folio
