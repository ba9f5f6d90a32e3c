// All that a sink is told of a request with one choice, kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "token_logprobs.h"

namespace folio {

struct KeptAnswer {
  std::vector<TokenLogprob> tokens;
  std::vector<TokenLogprob>
      prompt_logprobs;  // of the prompt's tokens but the first, for requests that want prompt rows
  FinishReason reason = FinishReason::kAbort;
  Usage usage;
  std::string message;  // why it was refused or failed
  bool finished = false;
  double first_token = 0, last_token = 0;  // when they came, on the clock of now_seconds(); 0: there is none

  std::vector<int32_t> ids() const {
    std::vector<int32_t> ids;
    for (const TokenLogprob& token : tokens) ids.push_back(token.id);
    return ids;
  }
};

// Keeps it where it comes: on the engine's thread.
class AnswerKeeper final : public Sink {
 public:
  void on_prompt_logprobs(std::span<const TokenOutput> tokens) override {
    for (const TokenOutput& token : tokens) answer.prompt_logprobs.push_back(TokenLogprob::kept(token));
  }
  void on_token(int32_t, const TokenOutput& token) override {
    answer.last_token = now_seconds();
    if (answer.tokens.empty()) answer.first_token = answer.last_token;
    answer.tokens.push_back(TokenLogprob::kept(token));
  }
  void on_finish(int32_t, FinishReason reason, const Usage& usage, const std::string& message) override {
    answer.reason = reason;
    answer.usage = usage;
    answer.message = message;
    answer.finished = true;
  }

  KeptAnswer answer;
};

}  // namespace folio
