// folio calibrate: the profile of dynamic verification, fitted to a model and to this machine.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "batch_lines.h"
#include "calibration_chart.h"
#include "commands.h"
#include "engine/calibration_run.h"
#include "engine/profile_identity.h"
#include "interrupt.h"
#include "model/topology.h"
#include "model_flags.h"
#include "tokenizer/stop_policy.h"

namespace folio {
namespace {

struct CalibrateFlags {
  ModelFlags model;
  GenerationFlags generation;
  std::string prompts, out;
  int32_t width = 5;
  int32_t max_num_seqs = 64;
  double seconds = 60;
};

using Requests = std::vector<std::shared_ptr<Request>>;

Requests read_prompts(const CalibrateFlags& flags, const ModelFiles& files) {
  Requests requests;
  for (const BatchRequest& line : read_requests(flags.prompts, "--prompts", flags.generation, files)) {
    requests.push_back(line.request);
    requests.back()->policies = stop_policies(files.tokenizer, line.stops, 1);
  }
  return requests;
}

// As much context as the longest request and the measured steps need.
RunnerOptions runner_for(const CalibrateFlags& flags, const Config& config, const Requests& requests) {
  RunnerOptions options = runner_options(flags.model);
  const auto refusal = speculation_refusal(config, make_topology(config), flags.width);
  if (refusal) fail(ErrorCode::kInvalidArgument, *refusal);
  options.num_speculative_tokens = flags.width;
  options.max_num_seqs = flags.max_num_seqs;
  options.max_head_rows = flags.max_num_seqs * (1 + flags.width);
  if (options.max_rows < options.max_head_rows) {
    fail(ErrorCode::kInvalidArgument, "--max-num-batched-tokens ", options.max_rows, " must hold the ",
         options.max_head_rows, " rows that --max-num-seqs ", flags.max_num_seqs, " requests verify at once");
  }
  int64_t longest = measured_context(flags.width);
  for (const auto& request : requests) longest = std::max(longest, std::ssize(request->prompt) + request->max_tokens);
  options.max_model_len = std::min(longest, context_length(config, 0));
  return options;
}

// Says how far it has come on a terminal, and ends on Ctrl-C.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { end(); }
  void operator()(const std::string& what, double done) {
    check_interrupt();
    if (isatty(STDERR_FILENO) == 0 || now_seconds() - shown_ < 0.2) return;
    shown_ = now_seconds();
    std::fprintf(stderr, "\r\033[Kcalibrate: %s, %.0f %%", what.c_str(), 100 * done);
  }
  void end() {
    if (shown_ > 0) std::fprintf(stderr, "\r\033[K");
    shown_ = 0;
  }

 private:
  double shown_ = 0;
};

// A third of the blocks takes no part in the fit, so that what is said about it is true for others.
struct Fit {
  std::vector<double> temperatures;
  std::vector<Reliability> before, after;  // by position, of the blocks that took no part
};

Fit fit(const std::vector<DraftBlock>& blocks, int32_t width) {
  std::vector<DraftBlock> fitted, others;
  for (size_t i = 0; i < blocks.size(); ++i) (i % 3 == 2 ? others : fitted).push_back(blocks[i]);
  Fit result{.temperatures = fit_temperatures(fitted, width), .before = {}, .after = {}};
  const std::vector<double> plain(static_cast<size_t>(width), 1.0);
  for (int32_t position = 0; position < width; ++position) {
    result.before.push_back(reliability(others, position, plain));
    result.after.push_back(reliability(others, position, result.temperatures));
  }
  return result;
}

std::string evidence(const Requests& requests, const ObservedDrafts& observed, const Fit& fit,
                     const MeasuredSteps& measured) {
  nlohmann::ordered_json json = {{"prompts", requests.size()},
                                 {"tokens", observed.text.size()},
                                 {"blocks", observed.blocks.size()},
                                 {"ece_before", nlohmann::ordered_json::array()},
                                 {"ece_after", nlohmann::ordered_json::array()},
                                 {"rounds", measured.rounds},
                                 {"forwards", nlohmann::ordered_json::array()}};
  for (const Reliability& r : fit.before) json["ece_before"].push_back(r.ece);
  for (const Reliability& r : fit.after) json["ece_after"].push_back(r.ece);
  for (const MeasuredSteps::Point& point : measured.points) {
    json["forwards"].push_back(
        {{"requests", point.requests}, {"rows_each", point.rows_each}, {"seconds", point.seconds}});
  }
  return json.dump();
}

void print_fit(const Fit& fit) {
  std::printf("draft   temperature   survived   ECE before   after   blocks held out\n");
  for (size_t i = 0; i < fit.after.size(); ++i) {
    double survived = 0;
    for (const ReliabilityBin& bin : fit.after[i].bins) survived += bin.observed * static_cast<double>(bin.blocks);
    const auto blocks = static_cast<double>(std::max<int64_t>(1, fit.after[i].blocks));
    std::printf("%5zu %13.3f %8.1f %% %12.4f %7.4f %17lld\n", i + 1, fit.temperatures[i], 100 * survived / blocks,
                fit.before[i].ece, fit.after[i].ece, static_cast<long long>(fit.after[i].blocks));
  }
}

// What the tables say about some batch sizes.
void print_costs(const StepCosts& costs, const CalibrateFlags& flags) {
  std::printf("requests   plain step   all drafts verified   draft head\n");
  for (int32_t requests = 1; requests <= flags.max_num_seqs; requests *= 2) {
    std::printf("%8d %9.2f ms %18.2f ms %9.2f ms\n", requests, 1e3 * costs.forward_seconds(requests),
                1e3 * costs.forward_seconds(requests * (flags.width + 1)),
                1e3 * costs.drafting_seconds(requests, flags.width));
  }
}

// Found out before minutes of work; what is there stays.
void check_writable(const std::string& path) {
  if (std::filesystem::is_directory(path)) fail(ErrorCode::kInvalidArgument, "--out: ", path, " is a directory");
  const std::string part = path + ".part";
  if (!std::ofstream(part)) fail(ErrorCode::kInvalidArgument, "--out: cannot write ", path);
  std::filesystem::remove(part);
}

// The whole file or none.
void write_file(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  std::ofstream out(part, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(part, path, error);
  if (!out || error) {
    std::filesystem::remove(part, error);
    fail(ErrorCode::kInvalidArgument, "--out: cannot write ", path);
  }
}

void calibrate(const CalibrateFlags& flags) {
  const std::string dir = model_dir(flags.model);
  const ModelFiles files = ModelFiles::open(dir);
  const Config& config = files.checkpoint.config();
  const Requests requests = read_prompts(flags, files);
  const RunnerOptions options = runner_for(flags, config, requests);
  const std::string stem = std::filesystem::path(flags.out).replace_extension().string();
  const std::string confidences = stem + ".reliability.svg", steps = stem + ".throughput.svg";
  for (const std::string& path : {flags.out, confidences, steps}) check_writable(path);
  note_default_model(flags.model);
  ModelRunner runner(files, options);
  catch_interrupts();

  Progress progress;
  const ObservedDrafts observed = observe_drafts(runner, requests, std::ref(progress));
  const Fit fitted = fit(observed.blocks, flags.width);
  const MeasuredSteps measured = measure_steps(
      runner, observed.text, {.max_num_seqs = flags.max_num_seqs, .seconds = flags.seconds}, std::ref(progress));
  progress.end();
  const CalibrationProfile profile{.identity = profile_identity(files, options, FOLIO_VERSION),
                                   .draft_width = flags.width,
                                   .max_num_seqs = flags.max_num_seqs,
                                   .costs = step_costs(measured.forwards(), measured.drafts, flags.max_num_seqs),
                                   .temperatures = fitted.temperatures};
  write_file(confidences, reliability_chart(fitted.before, fitted.after, "Confidences of the draft head"));
  write_file(steps, throughput_chart(measured, profile.costs.steps_per_second, concat("Steps on ", runner.ops_name())));
  // Last: where there is a profile, all is there.
  write_file(flags.out, profile_json(profile, evidence(requests, observed, fitted, measured)));
  std::printf("%zu answers, %zu blocks of drafts\n", requests.size(), observed.blocks.size());
  print_fit(fitted);
  print_costs(profile.costs, flags);
  std::printf("%s, %s and %s\n", flags.out.c_str(), confidences.c_str(), steps.c_str());
}

}  // namespace

void add_calibrate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("calibrate", "Fit a profile for dynamic verification of drafts");
  command->footer(
      "Answers the prompts, which should be like those to come but none that the model was trained on, compares what "
      "the "
      "draft head proposed with what the answers say, fits a temperature for each position, and times steps of this "
      "machine. Give the flags of model, cache and threads that the engine will run with: the profile holds for no "
      "others. Nothing else should run on the machine. Lines of --prompts are those of folio batch. Beside the profile "
      "it writes two charts, *.reliability.svg and *.throughput.svg.\n"
      "Example: folio calibrate --prompts prompts.jsonl --out profile.json\n"
      "         folio run --speculative dspark --dspark-profile profile.json --prompt 'Once upon a time'");
  const auto flags = std::make_shared<CalibrateFlags>();
  command->add_option("--prompts", flags->prompts, "Held-out prompts, one JSON object a line")
      ->type_name("F.jsonl")
      ->required();
  command->add_option("--out", flags->out, "The profile to write")->type_name("FILE")->required();
  command->add_option("--num-speculative-tokens", flags->width, "Tokens that are drafted at a time, 1 to 5")
      ->type_name("N")
      ->check(CLI::Range(1, 64));
  command->add_option("--max-num-seqs", flags->max_num_seqs, "Most requests at once that the profile is for")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command->add_option("--seconds", flags->seconds, "For timing steps; one round is made whatever it takes")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e5));
  add_generation_flags(*command, flags->generation);
  add_model_flags(*command, flags->model);
  command->callback([flags] { calibrate(*flags); });
}

}  // namespace folio
