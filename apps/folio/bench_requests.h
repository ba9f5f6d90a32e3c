// What measurements of the engine ask it for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "engine/engine_core.h"

namespace folio {

// Keeps the tokens and remembers when the first came.
class AnswerCounter final : public Sink {
 public:
  void on_token(int32_t choice, const TokenOutput& token) override;
  // Throws Error(kInvalidArgument) for a request that is refused.
  void on_finish(int32_t choice, FinishReason reason, const Usage& the_usage, const std::string& message) override;

  std::vector<int32_t> tokens;
  double first = 0;  // seconds
  Usage usage;
};

std::vector<int32_t> random_prompt(const Config& config, int64_t length, uint64_t seed);

// Greedy, to the last token.
std::shared_ptr<Request> bench_request(std::vector<int32_t> prompt, int64_t answer,
                                       std::shared_ptr<AnswerCounter> sink);

// What is being measured, on a terminal.
void announce_measurement(const std::string& what);

}  // namespace folio
