// Flags of how an answer is generated: of the one request of `run`, and of requests that say nothing else in `batch`.
#pragma once

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/request.h"

namespace folio {

struct GenerationFlags {
  SamplingParams sampling{.temperature = 0};
  int64_t max_tokens = 128;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  std::vector<std::string> logit_bias;  // ID:DELTA
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int64_t min_tokens = 0;
};

void add_generation_flags(CLI::App& command, GenerationFlags& flags);

// Hands all flags but the stop strings to a request. Throws Error(kInvalidArgument) for a malformed --logit-bias.
void apply_generation_flags(const GenerationFlags& flags, Request& request);

// What was replayed for an answer and where its runs began: {"decoder", "encoder", "plans": [{"start", "resume",
// "decoder_start", "known"}]} (docs/adr/0009).
nlohmann::ordered_json replay_json(const Usage& usage);

// What speculation did for an answer: {"drafted_tokens", "accepted_tokens", "forced_acceptance"}.
nlohmann::ordered_json speculation_json(const Usage& usage);

}  // namespace folio
