// folio bench speculation: what drafts are worth at each number of requests. One run: without speculation, with blocks
// of each width, with dynamic verification, and what the draft head costs. On random prompts how many drafts are
// accepted is given, not measured: a plain run says what comes next, and proposals are replaced by as many right tokens
// as the forced acceptance curve asks for (spec runtime 7.6), so that every mode generates the same text. Dynamic
// verification is told the probabilities of that curve. With --prompts drafts and confidences are the model's own.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench.h"
#include "bench_requests.h"
#include "checkpoint/presets.h"
#include "default_model.h"
#include "engine/calibration.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "model/cost.h"
#include "model_flags.h"
#include "speculation_load.h"

namespace folio {
namespace {

struct BenchSpeculationFlags {
  ModelFlags model;
  SpeculationFlags speculation;  // the profile
  std::vector<int32_t> requests = {1, 4, 8, 16, 32};
  double acceptance_length = 3.51;
  int64_t prompt = 16;
  int64_t answer = 144;
  int steps = 12;
  int64_t dynamic_steps = 200;
  std::string prompts;  // file; "": random ones
  GenerationFlags generation;
  bool json = false;
};

using Profile = std::shared_ptr<const CalibrationProfile>;

constexpr int64_t kWarmUp = 4;                // steps
constexpr int64_t kTurn = 10;                 // steps with dynamic verification, and then without speculation
constexpr const char* kPreset = "bench-cpu";  // without --model
constexpr CoverageNames kCoverageNames{.num_speculative_tokens = "the model's block",
                                       .max_num_seqs = "the most of --requests"};

struct Row {
  int32_t requests = 0;
  SpeculationWorkload workload;
  GivenAcceptance given;
  std::vector<LoadMeasurement> widths;     // of blocks, 0 being none; by turns
  LoadMeasurement dynamic, dynamic_plain;  // by turns
  double draft_bytes_share = 0;            // of the widest

  const LoadMeasurement& plain() const { return widths.front(); }
  const LoadMeasurement& widest() const { return widths.back(); }
  double ratio(const LoadMeasurement& m) const { return m.rate() / plain().rate(); }
  double dynamic_ratio() const { return dynamic.rate() / dynamic_plain.rate(); }
  // Time of the draft head over its share of the bytes.
  double draft_cost() const { return widest().draft_share() / draft_bytes_share; }
};

SpeculationWorkload make_workload(const BenchSpeculationFlags& flags, const ModelFiles& files) {
  SpeculationWorkload workload{.lines = {}, .tokenizer = &files.tokenizer};
  if (!flags.prompts.empty()) {
    workload.lines = read_requests(flags.prompts, "--prompts", flags.generation, files);
    return workload;
  }
  for (int32_t i = 0; i < std::ranges::max(flags.requests); ++i) {
    const auto seed = static_cast<uint64_t>(i) + 1;
    auto request = bench_request(random_prompt(files.checkpoint.config(), flags.prompt, seed), flags.answer, nullptr);
    // Drawn rather than greedy, which may fall into a loop that meets few experts.
    request->sampling = {.temperature = 1, .seed = seed};
    workload.lines.push_back({.request = request, .stops = {}});
  }
  return workload;
}

// Measures the rows of the table.
class Measurements {
 public:
  Measurements(WidthEngines& engines, const BenchSpeculationFlags& flags) : engines_(engines), flags_(flags) {}

  Row fixed_widths(const SpeculationWorkload& workload, const Config& config, int32_t requests) {
    Row row;
    row.requests = requests;
    row.workload = workload;
    if (flags_.prompts.empty()) {
      row.workload.lines.resize(static_cast<size_t>(requests));
      announce_measurement(concat(requests, " answers"));
      row.given = {.length = flags_.acceptance_length, .answers = load(row, 0)->answers(requests)};
    }
    announce_measurement(concat(requests, " requests, each width"));
    std::vector<std::unique_ptr<SpeculationLoad>> loads;
    row.widths.resize(static_cast<size_t>(engines_.widest()) + 1);
    for (int32_t width = 0; width <= engines_.widest(); ++width) {
      loads.push_back(load(row, width));
      LoadMeasurement warm_up;
      loads.back()->run(kWarmUp, warm_up);
    }
    while (row.plain().steps < flags_.steps) {
      const int64_t steps = std::min(kTurn, flags_.steps - row.plain().steps);
      for (size_t width = 0; width < loads.size(); ++width) loads[width]->run(steps, row.widths[width]);
    }
    const double draft = draft_weight_bytes(config, requests, engines_.widest());
    row.draft_bytes_share =
        draft / (draft + step_weight_bytes(config, int64_t{requests} * (1 + engines_.widest()), true));
    return row;
  }

  // Dynamic verification and none, by turns, both from the first step on.
  void dynamic(Row& row, const Profile& profile) {
    announce_measurement(concat(row.requests, " requests, dynamic"));
    const auto dynamic = load(row, engines_.widest(), profile), plain = load(row, 0);
    while (row.dynamic.steps < flags_.dynamic_steps) {
      const int64_t steps = std::min(kTurn, flags_.dynamic_steps - row.dynamic.steps);
      dynamic->run(steps, row.dynamic);
      plain->run(steps, row.dynamic_plain);
    }
  }

 private:
  std::unique_ptr<SpeculationLoad> load(const Row& row, int32_t width, const Profile& profile = nullptr) {
    const GivenAcceptance* given = flags_.prompts.empty() && width > 0 ? &row.given : nullptr;
    return std::make_unique<SpeculationLoad>(engines_.runner(width), engines_.config(width, profile), row.workload,
                                             row.requests, given);
  }

  WidthEngines& engines_;
  const BenchSpeculationFlags& flags_;
};

// What the steps of this run have taken, and confidences that are right as they are.
Profile measured_profile(const std::vector<Row>& rows, int32_t widest, int32_t max_num_seqs) {
  std::vector<TimedStep> forward;
  std::vector<std::vector<TimedStep>> draft(static_cast<size_t>(widest));
  for (const Row& row : rows) {
    for (size_t width = 0; width < row.widths.size(); ++width) {
      const LoadMeasurement& m = row.widths[width];
      forward.push_back(
          {.size = row.requests * (static_cast<int64_t>(width) + 1), .seconds = lower_quartile(m.forward_seconds)});
      if (width == 0) continue;
      draft[width - 1].push_back({.size = row.requests, .seconds = lower_quartile(m.draft_seconds)});
    }
  }
  const auto profile = std::make_shared<CalibrationProfile>();
  profile->draft_width = widest;
  profile->max_num_seqs = max_num_seqs;
  profile->temperatures.assign(static_cast<size_t>(widest), 1.0);
  profile->costs = step_costs(forward, draft, max_num_seqs);
  return profile;
}

void print_text(const std::string& ops, const BenchSpeculationFlags& flags, const std::vector<Row>& rows) {
  std::printf("%s, ", ops.c_str());
  if (flags.prompts.empty()) {
    std::printf("%.4g tokens of a whole verification accepted on average\n", flags.acceptance_length);
  } else {
    std::printf("acceptance is the model's own\n");
  }
  std::printf("%8s  %11s", "requests", "plain tok/s");
  for (size_t width = 1; width < rows.front().widths.size(); ++width) std::printf("    k=%zu", width);
  std::printf("  dynamic   draft head: time, bytes\n");
  for (const Row& row : rows) {
    std::printf("%8d  %11.1f", row.requests, row.plain().rate());
    for (size_t width = 1; width < row.widths.size(); ++width) std::printf("  %4.2fx", row.ratio(row.widths[width]));
    std::printf("   %5.3fx   %4.1f %%, %4.1f %%: %.2fx\n", row.dynamic_ratio(), 100 * row.widest().draft_share(),
                100 * row.draft_bytes_share, row.draft_cost());
  }
  std::printf("dynamic: %lld steps by turns with as many without speculation\n",
              static_cast<long long>(flags.dynamic_steps));
}

nlohmann::ordered_json measurement_json(const LoadMeasurement& m, double ratio) {
  return {{"tokens_per_second", m.rate()},
          {"ratio", ratio},
          {"steps", m.steps},
          {"accepted_length", m.speculation.accepted_length()},
          {"draft_time_share", m.draft_share()}};
}

nlohmann::ordered_json dynamic_json(const Row& row) {
  nlohmann::ordered_json json = measurement_json(row.dynamic, row.dynamic_ratio());
  json["plain_tokens_per_second"] = row.dynamic_plain.rate();
  json["draft_widths"] = row.dynamic.speculation.widths;
  json["verify_lengths"] = row.dynamic.speculation.lengths;
  json["skipped_steps"] = row.dynamic.speculation.skipped_steps;
  return json;
}

void print_json(const std::string& model, const std::string& ops, const BenchSpeculationFlags& flags,
                const std::vector<Row>& rows) {
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json fixed = nlohmann::ordered_json::array();
    for (size_t width = 1; width < row.widths.size(); ++width) {
      fixed.push_back(measurement_json(row.widths[width], row.ratio(row.widths[width])));
    }
    table.push_back({{"requests", row.requests},
                     {"plain_tokens_per_second", row.plain().rate()},
                     {"fixed", fixed},
                     {"dynamic", dynamic_json(row)},
                     {"draft",
                      {{"time_share", row.widest().draft_share()},
                       {"bytes_share", row.draft_bytes_share},
                       {"ratio", row.draft_cost()}}}});
  }
  nlohmann::ordered_json report = {{"model", model}, {"ops", ops}, {"acceptance_length", nullptr}, {"table", table}};
  if (flags.prompts.empty()) report["acceptance_length"] = flags.acceptance_length;
  std::printf("%s\n", report.dump(2).c_str());
}

// Refuses flags that do not go with the model, as far as its config.json tells.
void check_flags(const BenchSpeculationFlags& flags, const Config& config) {
  const auto widest = static_cast<int32_t>(config.dspark_block_size);
  if (const auto refusal = speculation_refusal(config, make_topology(config), widest)) {
    fail(ErrorCode::kInvalidArgument, *refusal);
  }
  if (const auto refusal = forced_refusal(flags.acceptance_length, widest, kCoverageNames.num_speculative_tokens)) {
    fail(ErrorCode::kInvalidArgument, *refusal);
  }
  if (flags.speculation.profile.empty()) return;
  const auto refusal = coverage_refusal(read_profile(flags.speculation.profile), widest,
                                        std::ranges::max(flags.requests), kCoverageNames);
  if (refusal) fail(ErrorCode::kInvalidArgument, *refusal);
}

void bench_speculation(const BenchSpeculationFlags& flags) {
  // What can be refused is refused before a checkpoint of gigabytes is made.
  if (flags.model.model.empty()) check_flags(flags, parse_config(preset_config_json(kPreset, false, 1), kPreset));
  RunnerOptions options = runner_options(flags.model);
  const std::string dir = flags.model.model.empty() ? preset_model_dir(kPreset) : flags.model.model;
  const ModelFiles files = ModelFiles::open(dir);
  const Config& config = files.checkpoint.config();
  check_flags(flags, config);
  const auto widest = static_cast<int32_t>(config.dspark_block_size);
  options.num_speculative_tokens = widest;
  options.max_num_seqs = std::ranges::max(flags.requests);
  make_geometry(options, config);  // refuses sizes of a PAGE that cannot be
  Profile profile = load_profile(flags.speculation, files, options, kCoverageNames);
  const SpeculationWorkload workload = make_workload(flags, files);
  WidthEngines engines(files, runner_options(flags.model), workload, options.max_num_seqs);
  catch_interrupts();
  if (flags.prompts.empty()) {
    std::fprintf(stderr,
                 "folio: how many drafts are accepted is given here: %.4g tokens of a verification on average\n",
                 flags.acceptance_length);
  }
  Measurements measurements(engines, flags);
  std::vector<Row> rows;
  rows.reserve(flags.requests.size());
  for (const int32_t requests : flags.requests) {
    rows.push_back(measurements.fixed_widths(workload, config, requests));
  }
  if (profile == nullptr) profile = measured_profile(rows, widest, options.max_num_seqs);
  for (Row& row : rows) measurements.dynamic(row, profile);
  const std::string ops = engines.runner(0).ops_name();
  flags.json ? print_json(dir, ops, flags, rows) : print_text(ops, flags, rows);
}

}  // namespace

void add_bench_speculation(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "speculation",
      "Speed with drafts as a ratio to that without, by number of requests and width of the block, and dynamic");
  command->footer(
      "How many drafts are accepted is given: each block has as many right tokens as the curve of "
      "--spec-decode-acceptance-length says, 3.51 being two always and the third in 51 % of the blocks. Dynamic "
      "verification is told that curve, and takes what steps cost from this run unless there is a --dspark-profile. It "
      "takes turns with no speculation, so that a machine that is now busy and now idle treats both alike. With "
      "--prompts drafts, confidences and acceptance are the model's own. "
      "The draft head's share of the model's time stands beside its share of the bytes of weights that a step reads, "
      "for "
      "the widest block. Without --model the bench-cpu checkpoint (2.3 GB) is made in the user's cache directory on "
      "first use. Nothing else should run on the machine.");
  const auto flags = std::make_shared<BenchSpeculationFlags>();
  command->add_option("--requests", flags->requests, "Requests that decode together")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--spec-decode-acceptance-length", flags->acceptance_length,
                   "Tokens of a verification that are accepted on average")
      ->type_name("L");
  command->add_option("--prompt", flags->prompt, "Prompt tokens of each request")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--answer", flags->answer, "Tokens of each answer")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--prompts", flags->prompts, "Prompts instead of random ones, lines of folio batch")
      ->type_name("F.jsonl");
  command->add_option("--steps", flags->steps, "Steps to measure of each width")
      ->type_name("N")
      ->check(CLI::Range(1, 10000));
  command->add_option("--dynamic-steps", flags->dynamic_steps, "Steps to measure of dynamic verification")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  command
      ->add_option("--dspark-profile", flags->speculation.profile,
                   "Profile of folio calibrate for dynamic verification (default: what steps cost in this run)")
      ->type_name("FILE");
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_model_flags(*command, flags->model, true);
  flags->speculation.method = "dspark";
  command->callback([flags] { bench_speculation(*flags); });
}

}  // namespace folio
