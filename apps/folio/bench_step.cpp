// folio bench step: whole steps of the model, one request. Decode at several contexts and one prefill, as fractions of
// the read bandwidth and of the dot-product peak probed in the same run; with --speculative dspark also steps that
// verify a block of drafts, and the draft head behind them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "bench.h"
#include "bench_requests.h"
#include "default_model.h"
#include "engine/context.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "model/cost.h"
#include "model_flags.h"
#include "ops/cpu/probe.h"

namespace folio {
namespace {

struct BenchStepFlags {
  ModelFlags model;
  SpeculationFlags speculation;  // method and number of tokens
  std::vector<int64_t> contexts = {512, 32768};
  int64_t prefill = 512;
  int steps = 32;
  int repeats = 3;
  bool json = false;
};

constexpr int kWarmUpSteps = 4;
constexpr uint64_t kContextSeed = 1;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int32_t random_token(const Config& config, uint64_t counter) {
  return static_cast<int32_t>(random_bits(kContextSeed, 0, counter) % static_cast<uint64_t>(config.vocab_size));
}

// Medians of steps of a number of rows.
struct Steps {
  double seconds = 0;
  double draft_seconds = 0;  // of the draft head behind it, for blocks of one draft less than there are rows
};

// Behind a context of random rows. Random ids rather than the model's own, which may fall into a loop that meets few
// experts.
Steps measure_steps(ModelRunner& runner, int64_t context, int steps, int32_t rows) {
  Sequence sequence(runner);
  install_random_context(runner, sequence, context, kContextSeed);
  SamplingParams greedy;
  greedy.temperature = 0;
  std::vector<double> seconds, draft_seconds;
  for (int i = 0; i < kWarmUpSteps + steps; ++i) {
    check_interrupt();
    runner.builder().clear();
    sequence.begin_span(rows);
    for (int32_t row = 0; row < rows; ++row) {
      runner.builder().add_row(
          {.value = random_token(runner.config(), static_cast<uint64_t>(context + i * rows + row))});
      runner.builder().add_sampled_row(greedy);
    }
    if (rows > 1) runner.builder().add_draft();
    const Step step = runner.builder().step();
    const double start = now_seconds();
    runner.run(CopyPlan(), step);
    const double done = now_seconds();
    if (rows > 1) runner.draft(step);
    if (i < kWarmUpSteps) continue;
    seconds.push_back(done - start);
    draft_seconds.push_back(now_seconds() - done);
  }
  return {.seconds = median(seconds), .draft_seconds = rows > 1 ? median(draft_seconds) : 0};
}

struct Decode {
  int64_t context = 0;
  double seconds = 0;
  RowCost cost;
  Steps verify;  // of a block; 0 seconds without speculation
};

Decode measure_decode(ModelRunner& runner, const Topology& topology, int64_t context, int steps) {
  Decode decode{.context = context,
                .seconds = measure_steps(runner, context, steps, 1).seconds,
                .cost = weight_cost(runner.config(), true),
                .verify = {}};
  if (const int32_t drafts = runner.options().num_speculative_tokens; drafts > 0) {
    decode.verify = measure_steps(runner, context, steps, 1 + drafts);
  }
  decode.cost += attention_cost(runner.config(), topology, runner.geometry(), context, true);
  return decode;
}

struct Prefill {
  int64_t tokens = 0;
  double seconds = 0;
  double flops = 0;
};

Prefill measure_prefill(ModelRunner& runner, const Topology& topology, int64_t tokens, int repeats) {
  Prefill prefill{.tokens = tokens};
  const double body = weight_cost(runner.config(), false).flops;
  for (int64_t p = 0; p < tokens; ++p) {
    const bool head = p + 1 == tokens;
    prefill.flops += head ? weight_cost(runner.config(), true).flops : body;
    prefill.flops += attention_cost(runner.config(), topology, runner.geometry(), p, head).flops;
  }
  SamplingParams greedy;
  greedy.temperature = 0;
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    check_interrupt();
    Sequence sequence(runner);
    runner.builder().clear();
    sequence.begin_span(tokens);
    for (int64_t p = 0; p < tokens; ++p) {
      runner.builder().add_row({.value = random_token(runner.config(), static_cast<uint64_t>(p))});
    }
    runner.builder().add_sampled_row(greedy);
    const double start = now_seconds();
    runner.run();
    if (i > 0) seconds.push_back(now_seconds() - start);
  }
  prefill.seconds = median(seconds);
  return prefill;
}

void print_text(const std::string& ops, const CpuProbe& probe, int32_t drafts, const std::vector<Decode>& decodes,
                const Prefill& prefill) {
  std::printf("%s\nprobe    read %.1f GB/s, dot products %.0f GFLOP/s\n", ops.c_str(), probe.read_gb_s,
              probe.bf16_gflop_s);
  for (const Decode& d : decodes) {
    std::printf("decode   context %7lld: %7.2f ms, %6.1f tok/s, %6.1f MB a token, %5.1f %% of read bandwidth, %.2fx\n",
                static_cast<long long>(d.context), 1e3 * d.seconds, 1 / d.seconds, 1e-6 * d.cost.bytes,
                1e-7 * d.cost.bytes / d.seconds / probe.read_gb_s, d.seconds / decodes.front().seconds);
  }
  for (const Decode& d : decodes) {
    if (drafts == 0) break;
    std::printf(
        "verify   context %7lld: %7.2f ms for %d drafts, %.2fx a plain step, and %.2f ms the draft head, %.2fx\n",
        static_cast<long long>(d.context), 1e3 * d.verify.seconds, drafts, d.verify.seconds / d.seconds,
        1e3 * d.verify.draft_seconds, d.verify.draft_seconds / d.seconds);
  }
  std::printf("prefill  %lld tokens: %.2f s, %.1f tok/s, %.2f GFLOP a token, %.1f %% of the dot peak\n",
              static_cast<long long>(prefill.tokens), prefill.seconds,
              static_cast<double>(prefill.tokens) / prefill.seconds,
              1e-9 * prefill.flops / static_cast<double>(prefill.tokens),
              1e-7 * prefill.flops / prefill.seconds / probe.bf16_gflop_s);
}

void print_json(const std::string& model, const std::string& ops, int threads, const CpuProbe& probe, int32_t drafts,
                const std::vector<Decode>& decodes, const Prefill& prefill) {
  const auto fraction = [&](const Decode& d) { return 1e-9 * d.cost.bytes / d.seconds / probe.read_gb_s; };
  nlohmann::ordered_json contexts = nlohmann::ordered_json::array();
  for (const Decode& d : decodes) {
    contexts.push_back({{"context", d.context},
                        {"seconds", d.seconds},
                        {"tokens_per_second", 1 / d.seconds},
                        {"bytes", d.cost.bytes},
                        {"bandwidth_fraction", fraction(d)},
                        {"relative_to_first", d.seconds / decodes.front().seconds}});
    if (drafts == 0) continue;
    contexts.back()["verify"] = {
        {"drafts", drafts}, {"seconds", d.verify.seconds}, {"draft_seconds", d.verify.draft_seconds}};
  }
  const nlohmann::ordered_json report = {
      {"model", model},
      {"ops", ops},
      {"threads", threads},
      {"probe", {{"read_gb_s", probe.read_gb_s}, {"bf16_gflop_s", probe.bf16_gflop_s}}},
      {"decode",
       {{"context", decodes.front().context},
        {"seconds", decodes.front().seconds},
        {"tokens_per_second", 1 / decodes.front().seconds},
        {"bandwidth_fraction", fraction(decodes.front())},
        {"contexts", contexts}}},
      {"prefill",
       {{"tokens", prefill.tokens},
        {"seconds", prefill.seconds},
        {"tokens_per_second", static_cast<double>(prefill.tokens) / prefill.seconds},
        {"flops", prefill.flops},
        {"dot_fraction", 1e-9 * prefill.flops / prefill.seconds / probe.bf16_gflop_s}}}};
  std::printf("%s\n", report.dump(2).c_str());
}

void bench_step(const BenchStepFlags& flags) {
  RunnerOptions options = runner_options(flags.model);
  if (options.isa == "ref") fail(ErrorCode::kInvalidArgument, "--isa ref is not for measuring");
  const std::string dir = flags.model.model.empty() ? preset_model_dir("bench-cpu") : flags.model.model;
  const ModelFiles files = ModelFiles::open(dir);
  const Config& config = files.checkpoint.config();
  const int32_t drafts = speculative_tokens(flags.speculation);
  check_speculation(drafts, config);
  options.num_speculative_tokens = drafts;
  options.max_head_rows = std::max(options.max_head_rows, 1 + drafts);
  options.max_rows = std::max(static_cast<int32_t>(flags.prefill), 1 + drafts);
  const int64_t longest = *std::max_element(flags.contexts.begin(), flags.contexts.end());
  const int64_t limit = config.max_position_embeddings, decoded = (kWarmUpSteps + flags.steps) * int64_t{1 + drafts};
  if (flags.prefill > limit || longest + decoded > limit) {
    fail(ErrorCode::kInvalidArgument, "--prefill ", flags.prefill, ", or --context ", longest, " and ", decoded,
         " rows of steps, do not fit in the model's context of ", limit, ": ask for less");
  }
  options.max_model_len = std::max(flags.prefill, longest + decoded);
  ModelRunner runner(files, options);
  const Topology topology = make_topology(config);
  catch_interrupts();

  // The machine may be busier at one end of the run than at the other: probe at both.
  const CpuOptions cpu{.isa = options.isa, .threads = options.threads};
  announce_measurement("the ceilings");
  CpuProbe probe = probe_cpu(cpu);
  // The prefill first: it meets every expert, so that no decode step waits for the mapping of one.
  announce_measurement(concat("a prefill of ", flags.prefill, " tokens"));
  const Prefill prefill = measure_prefill(runner, topology, flags.prefill, flags.repeats);
  std::vector<Decode> decodes;
  for (const int64_t context : flags.contexts) {
    announce_measurement(concat("decode at context ", context));
    decodes.push_back(measure_decode(runner, topology, context, flags.steps));
  }
  const CpuProbe after = probe_cpu(cpu);
  probe = {.read_gb_s = (probe.read_gb_s + after.read_gb_s) / 2,
           .bf16_gflop_s = (probe.bf16_gflop_s + after.bf16_gflop_s) / 2};

  if (flags.json) {
    print_json(dir, runner.ops_name(), options.threads > 0 ? options.threads : allowed_processors(), probe, drafts,
               decodes, prefill);
  } else {
    print_text(runner.ops_name(), probe, drafts, decodes, prefill);
  }
}

}  // namespace

void add_bench_step(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("step", "Whole steps of one request: decode and prefill");
  command->footer(
      "Without --model the bench-cpu checkpoint (2.3 GB) is made in the user's cache directory on first use. Contexts "
      "are installed with random rows, not prefilled. With --speculative dspark also steps that verify a whole block "
      "of "
      "drafts, and the draft head behind them. Medians; nothing else should run on the machine.");
  const auto flags = std::make_shared<BenchStepFlags>();
  command->add_option("--context", flags->contexts, "Positions before the decoded row; the first is the reference")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command->add_option("--prefill", flags->prefill, "Tokens of the prefill, in one step")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16));
  command->add_option("--steps", flags->steps, "Decode steps to measure")->type_name("N")->check(CLI::Range(1, 100000));
  command->add_option("--repeats", flags->repeats, "Prefills to measure")->type_name("N")->check(CLI::Range(1, 1000));
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_draft_flags(*command, flags->speculation);
  add_model_flags(*command, flags->model, true);
  command->callback([flags] { bench_step(*flags); });
}

}  // namespace folio
