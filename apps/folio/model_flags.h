// Flags about the model and how to run it, the same in every subcommand that runs one (docs/architecture.md, "Flags").
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/model_runner.h"

namespace folio {

struct ModelFlags {
  std::string model;  // "" = the default model
  std::string device = "cpu";
  std::string kv_cache_dtype = "fp4";
  std::string index_cache_dtype = "fp4";
  std::string memory_budget = "0.9";
  RunnerOptions runner;
};

// Declares --model, --device, --isa, --threads, the cache flags and --memory-budget on `command`;
// --max-num-batched-tokens unless the command chooses the rows of its steps itself.
void add_model_flags(CLI::App& command, ModelFlags& flags, bool chooses_rows = false);

// Declares --kv-cache-dtype and --index-cache-dtype alone.
void add_cache_format_flags(CLI::App& command, ModelFlags& flags, const std::string& group = "OPTIONS");

// Refuses what is not a whole number of 64 bits without sign, which a plain conversion would wrap or cut.
CLI::Validator seed_check();

// The directory of the model that the flags name; makes the default model when they name none.
std::string model_dir(const ModelFlags& flags);
// Neither --model nor $FOLIO_MODEL names a model: the one in the program answers.
bool means_bundled_model(const ModelFlags& flags);
// Says on stderr that the flags name no model and which one answers: when all is checked and the work begins.
void note_default_model(const ModelFlags& flags);

// The options that the parsed flags mean. Throws Error(kInvalidArgument, kUnsupported).
RunnerOptions runner_options(const ModelFlags& flags);

}  // namespace folio
