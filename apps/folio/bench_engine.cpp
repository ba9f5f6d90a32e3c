// folio bench engine: what the engine adds to the model and what it saves. Ratios within one run: many requests against
// one, a prefix hit against a cold prompt, decoder replay against a whole prefill, a preemption with and without an
// image of the state; and the host's time per step.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "bench.h"
#include "bench_requests.h"
#include "default_model.h"
#include "engine/engine_core.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "model_flags.h"

namespace folio {
namespace {

struct BenchEngineFlags {
  ModelFlags model;
  int32_t concurrency = 32;
  int64_t prompt = 32;
  int64_t answer = 128;
  int64_t shared_prompt = 8192;
  int64_t long_prompt = 8192;
  std::vector<int32_t> host_requests = {1, 64, 256};
  SpeculationFlags speculation;
  bool json = false;
};

constexpr int64_t kPreemptedAnswer = 24;  // tokens: enough for a preemption behind any verification

void run_all(EngineCore& core) {
  while (!core.empty()) {
    check_interrupt();
    core.step();
  }
}

// Tokens per second of `count` requests that arrive at once, prefill included.
double token_rate(ModelRunner& runner, const EngineConfig& config, const BenchEngineFlags& flags, int32_t count) {
  EngineCore core(runner, config);
  std::vector<std::shared_ptr<AnswerCounter>> sinks;
  for (int32_t i = 0; i < count; ++i) {
    sinks.push_back(std::make_shared<AnswerCounter>());
    core.submit(i, bench_request(random_prompt(runner.config(), flags.prompt, static_cast<uint64_t>(i) + 1),
                                 flags.answer, sinks.back()));
  }
  const double start = now_seconds();
  run_all(core);
  const double seconds = now_seconds() - start;
  int64_t tokens = 0;
  for (const auto& sink : sinks) tokens += std::ssize(sink->tokens);
  return static_cast<double>(tokens) / seconds;
}

// Seconds until the first token of a prompt in an engine that has run `before` first (nothing if empty).
double first_token(ModelRunner& runner, const EngineConfig& config, const std::vector<int32_t>& before,
                   const std::vector<int32_t>& prompt, int64_t* cached = nullptr) {
  EngineCore core(runner, config);
  if (!before.empty()) {
    core.submit(0, bench_request(before, 1, std::make_shared<AnswerCounter>()));
    run_all(core);
  }
  const auto sink = std::make_shared<AnswerCounter>();
  core.submit(1, bench_request(prompt, 1, sink));
  const double start = now_seconds();
  run_all(core);
  if (cached != nullptr) *cached = sink->usage.cached_tokens;
  return sink->first - start;
}

// Seconds from the preemption of a decoding request to its next token. `keep`: from the image of its state; else what
// it had run runs again.
double next_token(ModelRunner& runner, const EngineConfig& config, const std::vector<int32_t>& prompt, bool keep) {
  EngineCore core(runner, config);
  const auto sink = std::make_shared<AnswerCounter>();
  core.submit(0, bench_request(prompt, kPreemptedAnswer, sink));
  while (std::ssize(sink->tokens) < 4) core.step();
  const size_t told = sink->tokens.size();
  FOLIO_CHECK(core.scheduler().preempt_youngest());
  if (!keep) core.blocks().clear_cache();
  const double start = now_seconds();
  while (sink->tokens.size() == told) core.step();
  const double seconds = now_seconds() - start;
  FOLIO_CHECK(core.blocks().stats().resumed == (keep ? 1 : 0), "the pool has no room for an image");
  core.abort_all();
  return seconds;
}

// Host seconds per step with `count` requests decoding.
double host_seconds(ModelRunner& runner, const EngineConfig& config, int32_t count) {
  constexpr int kSteps = 16;
  EngineCore core(runner, config);
  for (int32_t i = 0; i < count; ++i) {
    core.submit(i, bench_request(random_prompt(runner.config(), 4, static_cast<uint64_t>(i) + 1),
                                 4 * kSteps * (1 + config.num_speculative_tokens), std::make_shared<AnswerCounter>()));
  }
  while (core.scheduler().stats().decode_rows < 2 * count) core.step();
  const EngineCore::Stats before = core.stats();
  for (int i = 0; i < kSteps; ++i) core.step();
  const double seconds = core.stats().host_seconds - before.host_seconds;
  core.abort_all();
  return seconds / kSteps;
}

void bench_engine(const BenchEngineFlags& flags) {
  RunnerOptions options = runner_options(flags.model);
  const std::string dir = flags.model.model.empty() ? preset_model_dir("bench-cpu") : flags.model.model;
  const ModelFiles files = ModelFiles::open(dir);
  const int32_t most =
      std::max(flags.concurrency, *std::max_element(flags.host_requests.begin(), flags.host_requests.end()));
  options.max_num_seqs = most;
  options.num_speculative_tokens = speculative_tokens(flags.speculation);
  options.max_head_rows = most * (1 + options.num_speculative_tokens);
  options.max_model_len = context_length(files.checkpoint.config(), flags.long_prompt + 1);
  make_geometry(options, files.checkpoint.config());  // refuses sizes of a PAGE that cannot be
  const int64_t tokens = std::max(most * (flags.prompt + flags.answer + 256), 2 * flags.long_prompt);
  options.pages = static_cast<int32_t>(tokens / options.block_size + 2 * most);
  EngineConfig config;
  config.max_num_seqs = most;
  config.max_num_batched_tokens = options.max_rows;
  apply_speculation_flags(flags.speculation, config);
  config.profile = load_profile(flags.speculation, files, options,
                                {.max_num_seqs = "the most of --concurrency and --host-requests"});
  ModelRunner runner(files, options);
  catch_interrupts();
  note_acceptance(config);
  announce_measurement("one request and many");
  token_rate(runner, config, flags, flags.concurrency);  // maps the weights
  const double alone = token_rate(runner, config, flags, 1);
  const double together = token_rate(runner, config, flags, flags.concurrency);

  announce_measurement("a prefix hit");
  const std::vector<int32_t> shared = random_prompt(runner.config(), flags.shared_prompt, 7);
  std::vector<int32_t> prompt(shared.begin(), shared.begin() + flags.shared_prompt * 9 / 10);
  const std::vector<int32_t> suffix = random_prompt(runner.config(), flags.shared_prompt - std::ssize(prompt), 8);
  prompt.insert(prompt.end(), suffix.begin(), suffix.end());
  int64_t cached = 0;
  const double cold = first_token(runner, config, {}, prompt);
  const double hit = first_token(runner, config, shared, prompt, &cached);

  announce_measurement("decoder replay");
  const std::vector<int32_t> lengthy = random_prompt(runner.config(), flags.long_prompt, 9);
  EngineConfig whole = config;
  whole.decoder_replay = false;
  const double replayed = first_token(runner, config, {}, lengthy);
  const double exact = first_token(runner, whole, {}, lengthy);

  announce_measurement("a preemption");
  std::vector<int32_t> longest = lengthy;
  longest.resize(longest.size() - kPreemptedAnswer);
  const double resumed = next_token(runner, config, longest, true);
  const double anew = next_token(runner, config, longest, false);

  std::vector<double> host;
  for (const int32_t count : flags.host_requests) {
    announce_measurement(concat("host time of ", count, " requests"));
    host.push_back(host_seconds(runner, config, count));
  }

  if (flags.json) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (size_t i = 0; i < host.size(); ++i) {
      steps.push_back({{"requests", flags.host_requests[i]}, {"host_seconds_per_step", host[i]}});
    }
    const nlohmann::ordered_json report = {{"model", dir},
                                           {"ops", runner.ops_name()},
                                           {"throughput",
                                            {{"alone_tokens_per_second", alone},
                                             {"concurrency", flags.concurrency},
                                             {"together_tokens_per_second", together},
                                             {"ratio", together / alone}}},
                                           {"prefix_hit",
                                            {{"prompt_tokens", prompt.size()},
                                             {"cached_tokens", cached},
                                             {"cold_seconds", cold},
                                             {"hit_seconds", hit},
                                             {"speedup", cold / hit}}},
                                           {"decoder_replay",
                                            {{"prompt_tokens", lengthy.size()},
                                             {"exact_seconds", exact},
                                             {"replay_seconds", replayed},
                                             {"ratio", replayed / exact}}},
                                           {"preemption",
                                            {{"prompt_tokens", longest.size()},
                                             {"resumed_seconds", resumed},
                                             {"anew_seconds", anew},
                                             {"speedup", anew / resumed}}},
                                           {"steps", steps}};
    std::printf("%s\n", report.dump(2).c_str());
    return;
  }
  std::printf("%s\n", runner.ops_name().c_str());
  std::printf("throughput       alone %.1f tok/s, %d together %.1f tok/s: %.1fx\n", alone, flags.concurrency, together,
              together / alone);
  std::printf("prefix hit       %lld of %zu tokens cached: first token after %.3f s, cold %.3f s: %.1fx\n",
              static_cast<long long>(cached), prompt.size(), hit, cold, cold / hit);
  std::printf("decoder replay   %zu tokens: %.2f s, whole prefill %.2f s: %.2fx\n", lengthy.size(), replayed, exact,
              replayed / exact);
  std::printf("preemption       of %zu tokens: next token after %.3f s from the kept state, %.2f s anew: %.0fx\n",
              longest.size(), resumed, anew, anew / resumed);
  for (size_t i = 0; i < host.size(); ++i) {
    std::printf("host             %4d decoding requests: %.1f us a step\n", flags.host_requests[i], 1e6 * host[i]);
  }
}

}  // namespace

void add_bench_engine(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("engine", "Many requests: throughput, prefix hits, replay, preemption, host time");
  command->footer(
      "Without --model the bench-cpu checkpoint (2.3 GB) is made in the user's cache directory on first use.");
  const auto flags = std::make_shared<BenchEngineFlags>();
  command->add_option("--concurrency", flags->concurrency, "Requests at once")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command->add_option("--prompt", flags->prompt, "Prompt tokens of each")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--answer", flags->answer, "Generated tokens of each")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--shared-prompt", flags->shared_prompt, "Prompt tokens of the prefix hit, 90 % shared")
      ->type_name("N")
      ->check(CLI::Range(256, 1 << 20));
  command->add_option("--long-prompt", flags->long_prompt, "Prompt tokens with and without decoder replay")
      ->type_name("N")
      ->check(CLI::Range(256, 1 << 20));
  command->add_option("--host-requests", flags->host_requests, "Decoding requests for the host's time")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_model_flags(*command, flags->model);
  add_speculation_flags(*command, flags->speculation);
  command->callback([flags] { bench_engine(*flags); });
}

}  // namespace folio
