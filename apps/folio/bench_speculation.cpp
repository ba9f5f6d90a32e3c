// folio bench speculation: what drafts are worth at each number of requests. One run: without speculation, with blocks
// of each width, with dynamic verification, and what the draft head costs. How many drafts are accepted is given, not
// measured: a plain run says what comes next, and proposals are replaced by as many right tokens as the forced
// acceptance curve asks for (spec runtime 7.6), so that every mode generates the same text. Dynamic verification is
// told the probabilities of that curve.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "bench.h"
#include "bench_requests.h"
#include "checkpoint/presets.h"
#include "default_model.h"
#include "engine/calibration.h"
#include "engine/calibration_profile.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "model/cost.h"
#include "model_flags.h"

namespace folio {
namespace {

struct Flags {
  ModelFlags model;
  SpeculationFlags speculation;  // the profile
  std::vector<int32_t> requests = {1, 4, 8, 16, 32};
  double acceptance_length = 3.51;
  int64_t prompt = 16;
  int64_t answer = 144;
  int steps = 12;
  bool json = false;
};

using Answers = std::vector<std::vector<int32_t>>;
using Profile = std::shared_ptr<const CalibrationProfile>;

// One mode at one number of requests.
struct Measurement {
  int64_t tokens = 0, steps = 0;
  double seconds = 0, forward_seconds = 0, draft_seconds = 0;
  int64_t drafted = 0, accepted = 0, verifications = 0;

  double rate() const { return static_cast<double>(tokens) / seconds; }
  double draft_share() const { return draft_seconds / (forward_seconds + draft_seconds); }
  double accepted_length() const {
    return verifications > 0 ? 1 + static_cast<double>(accepted) / static_cast<double>(verifications) : 1;
  }
};

// Requests that decode together.
class Load {
 public:
  Load(ModelRunner& runner, const EngineConfig& config, const Flags& flags, int32_t requests)
      : flags_(flags),
        width_(config.num_speculative_tokens),
        core_(runner, config),
        vocab_(runner.config().vocab_size) {
    for (int32_t i = 0; i < requests; ++i) {
      sinks_.push_back(std::make_shared<AnswerCounter>());
      const auto seed = static_cast<uint64_t>(i) + 1;
      auto request = bench_request(random_prompt(runner.config(), flags.prompt, seed), flags.answer, sinks_.back());
      // Drawn rather than greedy, which may fall into a loop that meets few experts.
      request->sampling = {.temperature = 1, .seed = seed};
      core_.submit(static_cast<RequestId>(i), request);
    }
  }

  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  // What the requests hold is for the next ones.
  ~Load() { core_.abort_all(); }

  // Steps from when every request has told `warm_up` tokens on, or the longest answer has room for one step more:
  // `steps` of them, or as many as there are before the first answer ends. `answers` is what the requests say.
  Measurement measure(int64_t warm_up, int steps, const Answers& answers) {
    while (std::ssize(shortest()) < warm_up && has_room(2)) step(answers);
    const EngineCore::Stats before = core_.stats();
    const SpeculationStats drafts = core_.scheduler().stats().speculation;
    const int64_t told_before = told();
    Measurement m;
    const double start = now_seconds();
    while (m.steps < steps && has_room(1)) {
      step(answers);
      ++m.steps;
    }
    FOLIO_CHECK(m.steps > 0);
    m.seconds = now_seconds() - start;
    m.tokens = told() - told_before;
    m.draft_seconds = core_.stats().draft_seconds - before.draft_seconds;
    m.forward_seconds = core_.stats().run_seconds - before.run_seconds;
    const SpeculationStats& after = core_.scheduler().stats().speculation;
    m.drafted = after.drafted_tokens() - drafts.drafted_tokens();
    m.accepted = after.accepted_tokens() - drafts.accepted_tokens();
    m.verifications = after.verifications - drafts.verifications;
    return m;
  }

  // All tokens of all answers.
  Answers answers() {
    while (!core_.empty()) step({});
    Answers all;
    for (const auto& sink : sinks_) all.push_back(sink->tokens);
    return all;
  }

 private:
  void step(const Answers& answers) {
    check_interrupt();
    for (const auto& state : core_.scheduler().states()) {
      if (!state->drafts.empty()) replace_drafts(*state, answers[static_cast<size_t>(state->id)]);
    }
    core_.step();
  }

  void replace_drafts(RequestState& state, const std::vector<int32_t>& answer) const {
    const int32_t right = ForcedAcceptance(flags_.acceptance_length).accepts(state.id, state.generated(), width_);
    for (int32_t i = 0; i < width_; ++i) {
      const auto place = static_cast<size_t>(i), next = static_cast<size_t>(state.generated() + i);
      const int32_t id = next < answer.size() ? answer[next] : 0;
      state.drafts[place] = i < right ? id : static_cast<int32_t>((id + 1) % vocab_);
      // Draft i is accepted behind the others with this probability.
      const double p = std::clamp(flags_.acceptance_length - 1 - i, 1e-6, 1 - 1e-6);
      state.confidences[place] = static_cast<float>(std::log(p / (1 - p)));
    }
  }

  // Whether no answer ends within so many steps.
  bool has_room(int64_t steps) const { return std::ssize(longest()) + steps * (1 + width_) < flags_.answer; }
  const std::vector<int32_t>& shortest() const {
    return (*std::ranges::min_element(sinks_, {}, [](const auto& sink) { return sink->tokens.size(); }))->tokens;
  }
  const std::vector<int32_t>& longest() const {
    return (*std::ranges::max_element(sinks_, {}, [](const auto& sink) { return sink->tokens.size(); }))->tokens;
  }
  int64_t told() const {
    int64_t count = 0;
    for (const auto& sink : sinks_) count += std::ssize(sink->tokens);
    return count;
  }

  const Flags& flags_;
  int32_t width_;
  EngineCore core_;
  int64_t vocab_;
  std::vector<std::shared_ptr<AnswerCounter>> sinks_;
};

// An engine for each number of drafts, 0 being none. Their weights are one mapping of the checkpoint.
class Engines {
 public:
  Engines(const ModelFiles& files, const Flags& flags) : flags_(flags) {
    const auto widest = static_cast<int32_t>(files.checkpoint.config().dspark_block_size);
    const int32_t most = *std::ranges::max_element(flags.requests);
    for (int32_t width = 0; width <= widest; ++width) {
      RunnerOptions options = runner_options(flags.model);
      options.num_speculative_tokens = width;
      options.max_num_seqs = most;
      options.max_head_rows = most * (1 + width);
      options.max_rows = static_cast<int32_t>(std::max<int64_t>(options.max_head_rows + 1, most * flags.prompt));
      options.max_model_len = flags.prompt + flags.answer;
      options.pages = static_cast<int32_t>(most * (options.max_model_len / options.block_size + 1));
      runners_.push_back(std::make_unique<ModelRunner>(files, options));
    }
  }

  int32_t widest() const { return static_cast<int32_t>(runners_.size()) - 1; }
  ModelRunner& runner(int32_t width) { return *runners_[static_cast<size_t>(width)]; }

  Load load(int32_t width, int32_t requests, const Profile& profile = nullptr) {
    EngineConfig config;
    config.max_num_seqs = runner(width).options().max_num_seqs;
    config.max_num_batched_tokens = runner(width).options().max_rows;
    config.num_speculative_tokens = width;
    config.profile = profile;
    config.prefix_cache = false;
    return {runner(width), config, flags_, requests};
  }

 private:
  const Flags& flags_;
  std::vector<std::unique_ptr<ModelRunner>> runners_;
};

constexpr int64_t kWarmUp = 4;                // tokens
constexpr const char* kPreset = "bench-cpu";  // without --model
constexpr CoverageNames kCoverageNames{.num_speculative_tokens = "the model's block",
                                       .max_num_seqs = "the most of --requests"};

struct Row {
  int32_t requests = 0;
  Answers answers;
  Measurement plain;               // before the others
  Measurement plain_again;         // after them
  std::vector<Measurement> fixed;  // by width
  Measurement dynamic;
  double draft_bytes_share = 0;  // of the widest

  // The machine may be busier at one end of the run than at the other.
  double plain_rate() const { return (plain.rate() + plain_again.rate()) / 2; }
  double ratio(const Measurement& m) const { return m.rate() / plain_rate(); }
  const Measurement& widest() const { return fixed.back(); }
  // Time of the draft head over its share of the bytes.
  double draft_cost() const { return widest().draft_share() / draft_bytes_share; }
};

Row measure_fixed(Engines& engines, const Flags& flags, const Config& config, int32_t requests) {
  Row row;
  row.requests = requests;
  announce_measurement(concat(requests, " requests without speculation"));
  Load plain = engines.load(0, requests);
  row.plain = plain.measure(kWarmUp, 2 * flags.steps, {});
  row.answers = plain.answers();
  for (int32_t width = 1; width <= engines.widest(); ++width) {
    announce_measurement(concat(requests, " requests, blocks of ", width));
    row.fixed.push_back(engines.load(width, requests).measure(kWarmUp, flags.steps, row.answers));
  }
  const double draft = draft_weight_bytes(config, requests, engines.widest());
  row.draft_bytes_share = draft / (draft + step_weight_bytes(config, int64_t{requests} * (1 + engines.widest()), true));
  return row;
}

// Dynamic verification from the middle of the answers on, when it has found out whether drafting pays.
void measure_dynamic(Engines& engines, const Flags& flags, const Profile& profile, Row& row) {
  announce_measurement(concat(row.requests, " requests, dynamic"));
  row.dynamic = engines.load(engines.widest(), row.requests, profile)
                    .measure(flags.answer / 2, static_cast<int>(flags.answer), row.answers);
  announce_measurement(concat(row.requests, " requests without speculation, again"));
  row.plain_again = engines.load(0, row.requests).measure(kWarmUp, 2 * flags.steps, {});
}

// What the steps of this run have taken, and confidences that are right as they are.
Profile measured_profile(const std::vector<Row>& rows, int32_t widest, int32_t max_num_seqs) {
  std::vector<TimedStep> forward, draft;
  const auto add = [](int64_t size, double seconds, const Measurement& m, std::vector<TimedStep>& points) {
    points.push_back({.size = size, .seconds = seconds / static_cast<double>(m.steps)});
  };
  for (const Row& row : rows) {
    add(row.requests, row.plain.forward_seconds, row.plain, forward);
    for (size_t i = 0; i < row.fixed.size(); ++i) {
      add(row.requests * (static_cast<int64_t>(i) + 2), row.fixed[i].forward_seconds, row.fixed[i], forward);
    }
    add(row.requests, row.widest().draft_seconds, row.widest(), draft);
  }
  const auto profile = std::make_shared<CalibrationProfile>();
  profile->draft_width = widest;
  profile->max_num_seqs = max_num_seqs;
  profile->temperatures.assign(static_cast<size_t>(widest), 1.0);
  profile->costs.draft_seconds = latency_envelope(draft, max_num_seqs);
  for (const double seconds : latency_envelope(forward, int64_t{max_num_seqs} * (widest + 1))) {
    profile->costs.steps_per_second.push_back(1 / seconds);
  }
  return profile;
}

void print_text(const std::string& ops, const Flags& flags, const std::vector<Row>& rows) {
  std::printf("%s, %.4g tokens of a whole verification accepted on average\n", ops.c_str(), flags.acceptance_length);
  std::printf("%8s  %11s", "requests", "plain tok/s");
  for (size_t width = 1; width <= rows.front().fixed.size(); ++width) std::printf("    k=%zu", width);
  std::printf("  dynamic   draft head: time, bytes\n");
  for (const Row& row : rows) {
    std::printf("%8d  %11.1f", row.requests, row.plain_rate());
    for (const Measurement& m : row.fixed) std::printf("  %4.2fx", row.ratio(m));
    std::printf("    %4.2fx   %4.1f %%, %4.1f %%: %.2fx\n", row.ratio(row.dynamic), 100 * row.widest().draft_share(),
                100 * row.draft_bytes_share, row.draft_cost());
  }
}

nlohmann::ordered_json measurement_json(const Row& row, const Measurement& m) {
  return {{"tokens_per_second", m.rate()},
          {"ratio", row.ratio(m)},
          {"steps", m.steps},
          {"drafted_tokens", m.drafted},
          {"accepted_length", m.accepted_length()},
          {"draft_time_share", m.draft_share()}};
}

void print_json(const std::string& model, const std::string& ops, const Flags& flags, const std::vector<Row>& rows) {
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json fixed = nlohmann::ordered_json::array();
    for (const Measurement& m : row.fixed) fixed.push_back(measurement_json(row, m));
    table.push_back({{"requests", row.requests},
                     {"plain_tokens_per_second", row.plain_rate()},
                     {"fixed", fixed},
                     {"dynamic", measurement_json(row, row.dynamic)},
                     {"draft",
                      {{"time_share", row.widest().draft_share()},
                       {"bytes_share", row.draft_bytes_share},
                       {"ratio", row.draft_cost()}}}});
  }
  const nlohmann::ordered_json report = {
      {"model", model}, {"ops", ops}, {"acceptance_length", flags.acceptance_length}, {"table", table}};
  std::printf("%s\n", report.dump(2).c_str());
}

// Refuses flags that do not go with the model, as far as its config.json tells.
void check_flags(const Flags& flags, const Config& config) {
  const auto widest = static_cast<int32_t>(config.dspark_block_size);
  if (const auto refusal = speculation_refusal(config, make_topology(config), widest)) {
    fail(ErrorCode::kInvalidArgument, *refusal);
  }
  if (const auto refusal = forced_refusal(flags.acceptance_length, widest, kCoverageNames.num_speculative_tokens)) {
    fail(ErrorCode::kInvalidArgument, *refusal);
  }
  if (const int64_t least = 2 * (1 + widest) + 1; flags.answer < least) {
    fail(ErrorCode::kInvalidArgument, "--answer ", flags.answer, " is too short for two steps with blocks of ", widest,
         ": it must be ", least, " or more");
  }
  if (flags.speculation.profile.empty()) return;
  const auto refusal = coverage_refusal(read_profile(flags.speculation.profile), widest,
                                        std::ranges::max(flags.requests), kCoverageNames);
  if (refusal) fail(ErrorCode::kInvalidArgument, *refusal);
}

void bench_speculation(const Flags& flags) {
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
  Engines engines(files, flags);
  catch_interrupts();
  std::fprintf(stderr, "folio: how many drafts are accepted is given here: %.4g tokens of a verification on average\n",
               flags.acceptance_length);
  std::vector<Row> rows;
  engines.load(0, flags.requests.back()).measure(kWarmUp, flags.steps, {});  // maps the weights
  for (const int32_t requests : flags.requests) rows.push_back(measure_fixed(engines, flags, config, requests));
  if (profile == nullptr) profile = measured_profile(rows, widest, engines.runner(widest).options().max_num_seqs);
  for (Row& row : rows) measure_dynamic(engines, flags, profile, row);
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
      "verification is told that curve, and takes what steps cost from this run unless there is a --dspark-profile. "
      "The draft head's share of the model's time stands beside its share of the bytes of weights that a step reads, "
      "for "
      "the widest block. Without --model the bench-cpu checkpoint (2.3 GB) is made in the user's cache directory on "
      "first use. Nothing else should run on the machine.");
  const auto flags = std::make_shared<Flags>();
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
  command
      ->add_option("--answer", flags->answer,
                   "Tokens of each answer; dynamic verification is measured over the second half")
      ->type_name("N")
      ->check(CLI::Range(32, 1 << 16));
  command->add_option("--steps", flags->steps, "Steps to measure of each width; twice as many without drafts")
      ->type_name("N")
      ->check(CLI::Range(1, 10000));
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
