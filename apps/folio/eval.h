// The parts of folio eval. Each measures, prints its table to standard output, and returns the same figures as JSON.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

#include "eval_engine.h"
#include "eval_suite.h"

namespace folio {

struct EvalContext {
  const ModelFiles& files;
  const EvalSuite& suite;
  RunnerOptions runner;  // machine, formats, and how many requests run at once
  int64_t limit = 0;     // most prompts or rows of one figure; 0: all that the suite has

  // How many of `count` things to take.
  int64_t limited(int64_t count) const { return limit > 0 ? std::min(limit, count) : count; }
};

// NLL per token and bits per byte of each domain, over rows of 1,024 tokens (eval_text.cpp).
nlohmann::ordered_json eval_held_out(const EvalContext& context);
// The same under each cache format, with the bytes that a token takes (eval_text.cpp).
nlohmann::ordered_json eval_caches(const EvalContext& context);
// Definitions, tool calls and JSON answers, greedy (eval_answers.cpp).
nlohmann::ordered_json eval_recall(const EvalContext& context);
nlohmann::ordered_json eval_formats(const EvalContext& context);
// Tokens per verification of five drafts, greedy, by kind of question and over the held-out chat (eval_drafts.cpp).
nlohmann::ordered_json eval_drafts(const EvalContext& context);
// What decoder and encoder bounded replay cost in NLL and in greedy answers (eval_replay.cpp).
nlohmann::ordered_json eval_replay(const EvalContext& context);

}  // namespace folio
