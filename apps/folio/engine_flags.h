// Flags of the engine, the same in every subcommand that runs one (docs/architecture.md, "Flags").
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "engine/calibration_profile.h"
#include "engine/engine_config.h"
#include "model_flags.h"

namespace folio {

struct SpeculationFlags {
  std::string method = "none";
  int32_t num_tokens = 5;
  std::string acceptance = "match";
  double acceptance_length = 0, acceptance_rate = 0;
  std::string profile;  // file of a calibration profile; "": verification of a fixed width
  // Given or not.
  CLI::Option* method_option = nullptr;
  CLI::Option* num_tokens_option = nullptr;
  CLI::Option* acceptance_length_option = nullptr;
  CLI::Option* acceptance_rate_option = nullptr;
};

struct EngineFlags {
  int64_t max_model_len = 0;  // 0: the model's limit
  EngineConfig config;
  bool decoder_replay = true;
  bool encoder_replay = true;
  CLI::Option* encoder_replay_option = nullptr;  // not given: on if PAGEs are long enough for it
  bool exact = false;
  SpeculationFlags speculation;
};

// Declares --max-model-len, --max-num-seqs, --long-prefill-token-threshold, the flags of the prefix cache and of
// bounded replay, --exact, and those of speculation on `command`.
void add_engine_flags(CLI::App& command, EngineFlags& flags);
// --speculative and --num-speculative-tokens.
void add_draft_flags(CLI::App& command, SpeculationFlags& flags);
// --dspark-profile.
void add_profile_flag(CLI::App& command, SpeculationFlags& flags);
// These two and the other flags of speculation.
void add_speculation_flags(CLI::App& command, SpeculationFlags& flags);

// The tokens to draft that the flags ask for; 0: no speculation. Throws Error(kInvalidArgument) for flags that do not
// go together.
int32_t speculative_tokens(const SpeculationFlags& flags);

// Throws Error(kInvalidArgument) for so many drafts, if any, that the model's draft head does not make.
void check_speculation(int32_t tokens, const Config& config);

// The calibration profile that the flags name, null if none: read and held against the model, the machine, and the
// width and number of requests of `options`, before a weight is read. `names` are those of the two in messages. Throws
// Error(kNotFound, kInvalidArgument) with every reason why it does not hold.
std::shared_ptr<const CalibrationProfile> load_profile(const SpeculationFlags& flags, const ModelFiles& files,
                                                       const RunnerOptions& options, const CoverageNames& names = {});
// How the flags have the engine speculate, but for the profile. Throws Error(kInvalidArgument) likewise.
void apply_speculation_flags(const SpeculationFlags& flags, EngineConfig& config);

// What an engine is made of. Changed by who knows more than the flags say, then checked.
struct EngineSetup {
  RunnerOptions runner;
  EngineConfig engine;
};

// What the parsed flags of model and engine mean for a model. Throws Error(kInvalidArgument, kUnsupported, kNotFound).
EngineSetup engine_setup(const ModelFlags& model, const EngineFlags& flags, const ModelFiles& files);

// The cache layout of the flags of a model. Throws Error(kInvalidArgument): a block size that cannot be.
Geometry make_geometry(const RunnerOptions& options, const Config& config);

// Throws Error(kInvalidArgument) with every reason why the setup cannot work; reads no weight.
void check_setup(const EngineSetup& setup, const Config& config);

// On stderr: that acceptance of drafts changes answers, if it does.
void note_acceptance(const EngineConfig& config);

}  // namespace folio
