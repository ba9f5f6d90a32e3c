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
};

void add_generation_flags(CLI::App& command, GenerationFlags& flags);

// What was replayed for an answer and where its runs began: {"decoder", "encoder", "plans": [{"start", "resume",
// "decoder_start", "known"}]} (docs/adr/0009).
nlohmann::ordered_json replay_json(const Usage& usage);

}  // namespace folio
