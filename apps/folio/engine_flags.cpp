#include "engine_flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "cache/state_transfer.h"
#include "engine/profile_identity.h"

namespace folio {
namespace {

// The mean accepted length that the flags force; 0: none.
double forced_length(const SpeculationFlags& flags) {
  if (*flags.acceptance_length_option && *flags.acceptance_rate_option) {
    fail(ErrorCode::kInvalidArgument, "--spec-decode-acceptance-length and --spec-decode-acceptance-rate describe the ",
         "same curve: set at most one");
  }
  if (*flags.acceptance_rate_option) return 1 + speculative_tokens(flags) * flags.acceptance_rate;
  return *flags.acceptance_length_option ? flags.acceptance_length : 0;
}

}  // namespace

Geometry make_geometry(const RunnerOptions& options, const Config& config) {
  return Geometry(geometry_inputs(config, make_topology(config), options.block_size, options.cache_format,
                                  options.num_speculative_tokens));
}

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  const std::string group = "Engine";
  EngineConfig& config = flags.config;
  command.add_option("--max-model-len", flags.max_model_len, "Most tokens of prompt and answer; 0: the model's limit")
      ->type_name("N")
      ->group(group);
  command.add_option("--max-num-seqs", config.max_num_seqs, "Requests that run at once")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 16))
      ->group(group);
  command
      .add_option("--long-prefill-token-threshold", config.long_prefill_token_threshold,
                  "Most rows of one prompt in a step; 0: no limit")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30))
      ->group(group);
  command
      .add_flag("--prefix-cache,!--no-prefix-cache,--enable_prefix_caching", config.prefix_cache,
                "Take over computed prefixes of other requests (default: on)")
      ->group(group);
  command
      .add_option("--state-checkpoint-interval-tokens", config.state_checkpoint_interval,
                  "Without encoder replay: tokens between kept images of the window state; 0: none but demanded ones")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->group(group);
  command
      .add_flag("--decoder-swa-bounded-replay,!--no-decoder-swa-bounded-replay", flags.decoder_replay,
                "Prefill runs the decoder layers for the last window of a prompt only (default: on). Answers to longer "
                "prompts are close to those without, not equal")
      ->group(group);
  flags.encoder_replay_option =
      command
          .add_flag(
              "--encoder-swa-bounded-replay,!--no-encoder-swa-bounded-replay", flags.encoder_replay,
              "A prefix hit rebuilds the window state from one PAGE (default: on if PAGEs are as long as the "
              "window). Answers behind such a hit are close to those without, not equal; off: from kept images, equal")
          ->group(group);
  command.add_flag("--exact", flags.exact, "Answers equal those of a full prefill: no bounded replay, images instead")
      ->group(group);
  add_speculation_flags(command, flags.speculation);
}

void add_draft_flags(CLI::App& command, SpeculationFlags& flags) {
  const std::string group = "Speculation";
  flags.method_option =
      command
          .add_option("--speculative,--method", flags.method,
                      "dspark: the model's draft head proposes tokens and a step verifies them; answers stay the same, "
                      "bit for bit")
          ->check(CLI::IsMember({"dspark", "none"}))
          ->group(group);
  flags.num_tokens_option =
      command.add_option("--num-speculative-tokens", flags.num_tokens, "Tokens that it proposes at a time, 1 to 5")
          ->type_name("N")
          ->group(group);
}

void add_profile_flag(CLI::App& command, SpeculationFlags& flags) {
  command
      .add_option(
          "--dspark-profile,--calibration-profile", flags.profile,
          "Profile of folio calibrate: a step verifies as many of the proposals as pay, and none are made while "
          "that does not pay (default: all are verified)")
      ->type_name("FILE")
      ->group("Speculation");
}

void add_speculation_flags(CLI::App& command, SpeculationFlags& flags) {
  const std::string group = "Speculation";
  add_draft_flags(command, flags);
  add_profile_flag(command, flags);
  command
      .add_option("--spec-acceptance", flags.acceptance,
                  "match: a proposal is kept if it is what is sampled; the same draws as without speculation. ratio: "
                  "proposals are drawn too and kept by the ratio of the probabilities, often more of them; answers of "
                  "the same distribution, but other draws. Equal for greedy requests")
      ->check(CLI::IsMember({"match", "ratio"}))
      ->group(group);
  flags.acceptance_length_option =
      command
          .add_option(
              "--spec-decode-acceptance-length", flags.acceptance_length,
              "For measurements: so many tokens of a verification are kept on average, whatever the model says; "
              "the text means nothing")
          ->type_name("L")
          ->group(group);
  flags.acceptance_rate_option = command
                                     .add_option("--spec-decode-acceptance-rate", flags.acceptance_rate,
                                                 "The same as the share of the proposals that is accepted")
                                     ->type_name("R")
                                     ->check(CLI::Range(0.0, 1.0))
                                     ->group(group);
}

int32_t speculative_tokens(const SpeculationFlags& flags) {
  if (flags.method == "dspark") {
    if (flags.num_tokens != 0) return flags.num_tokens;
    fail(ErrorCode::kInvalidArgument,
         "--num-speculative-tokens 0 must be from 1 to the model's block: to propose none ",
         "leave out --speculative dspark");
  }
  if (*flags.num_tokens_option) {
    fail(ErrorCode::kInvalidArgument, "--num-speculative-tokens needs --speculative dspark");
  }
  return 0;
}

void check_speculation(int32_t tokens, const Config& config) {
  if (tokens == 0) return;
  if (const auto refusal = speculation_refusal(config, make_topology(config), tokens)) {
    fail(ErrorCode::kInvalidArgument, *refusal);
  }
}

void apply_speculation_flags(const SpeculationFlags& flags, EngineConfig& config) {
  config.num_speculative_tokens = speculative_tokens(flags);
  config.forced_acceptance_length = forced_length(flags);
  config.acceptance = flags.acceptance == "ratio" ? Acceptance::kRatio : Acceptance::kMatch;
}

std::shared_ptr<const CalibrationProfile> load_profile(const SpeculationFlags& flags, const ModelFiles& files,
                                                       const RunnerOptions& options, const CoverageNames& names) {
  if (flags.profile.empty()) return nullptr;
  if (speculative_tokens(flags) == 0) {
    fail(ErrorCode::kInvalidArgument, "--dspark-profile needs --speculative dspark");
  }
  auto profile = std::make_shared<const CalibrationProfile>(read_profile(flags.profile));
  std::string reasons;
  for (const auto& refusal :
       {identity_refusal(*profile, profile_identity(files, options, FOLIO_VERSION), flags.profile),
        coverage_refusal(*profile, options.num_speculative_tokens, options.max_num_seqs, names)}) {
    if (refusal) reasons += (reasons.empty() ? "" : "; ") + *refusal;
  }
  if (!reasons.empty()) fail(ErrorCode::kInvalidArgument, reasons);
  return profile;
}

EngineSetup engine_setup(const ModelFlags& model, const EngineFlags& flags, const ModelFiles& files) {
  const Config& config = files.checkpoint.config();
  EngineSetup setup{.runner = runner_options(model), .engine = flags.config};
  const bool asked = flags.encoder_replay_option->count() > 0;
  if (flags.exact && asked && flags.encoder_replay) {
    fail(ErrorCode::kInvalidArgument, "--exact and --encoder-swa-bounded-replay exclude each other: leave one out");
  }
  setup.runner.max_model_len = context_length(config, flags.max_model_len);
  setup.runner.max_num_seqs = flags.config.max_num_seqs;
  apply_speculation_flags(flags.speculation, setup.engine);
  setup.runner.num_speculative_tokens = setup.engine.num_speculative_tokens;
  setup.engine.profile = load_profile(flags.speculation, files, setup.runner);
  setup.runner.max_head_rows = flags.config.max_num_seqs * (1 + setup.runner.num_speculative_tokens);
  setup.engine.max_num_batched_tokens = setup.runner.max_rows;
  setup.engine.decoder_replay = flags.decoder_replay && !flags.exact;
  // Unasked it gives way where it cannot work; asked for it is refused there, by check_setup.
  setup.engine.encoder_replay =
      flags.encoder_replay && !flags.exact && (asked || !replay_refusal(make_geometry(setup.runner, config)));
  return setup;
}

void check_setup(const EngineSetup& setup, const Config& config) {
  // Before the layout: it has no windows for stages that are not there.
  check_speculation(setup.engine.num_speculative_tokens, config);
  resolve(setup.engine, config, make_topology(config), make_geometry(setup.runner, config));
}

void note_acceptance(const EngineConfig& config) {
  if (config.num_speculative_tokens > 0 && config.acceptance == Acceptance::kRatio) {
    std::fprintf(
        stderr,
        "folio: drafts are accepted by ratio: sampled answers have the same distribution as without speculation "
        "and are other ones\n");
  }
  if (config.forced_acceptance_length == 0) return;
  std::fprintf(stderr,
               "folio: acceptance of drafts is forced, %.4g tokens of a verification on average: for measurements, the "
               "text means nothing\n",
               config.forced_acceptance_length);
}

}  // namespace folio
