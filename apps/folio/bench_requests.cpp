#include "bench_requests.h"

#include <unistd.h>

#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"

namespace folio {

void AnswerCounter::on_token(int32_t, const TokenOutput& token) {
  if (tokens.empty()) first = now_seconds();
  tokens.push_back(token.id);
}

void AnswerCounter::on_finish(int32_t, FinishReason reason, const Usage& the_usage, const std::string& message) {
  if (reason == FinishReason::kRefused) fail(ErrorCode::kInvalidArgument, message);
  usage = the_usage;
}

std::vector<int32_t> random_prompt(const Config& config, int64_t length, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<int32_t>(random_bits(seed, 0, static_cast<uint64_t>(i)) %
                                          static_cast<uint64_t>(config.vocab_size)));
  }
  return tokens;
}

std::shared_ptr<Request> bench_request(std::vector<int32_t> prompt, int64_t answer,
                                       std::shared_ptr<AnswerCounter> sink) {
  auto request = std::make_shared<Request>();
  request->prompt = std::move(prompt);
  request->max_tokens = answer;
  request->sampling.temperature = 0;
  request->ignore_eos = true;
  request->sink = std::move(sink);
  return request;
}

void announce_measurement(const std::string& what) {
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "measuring %s\n", what.c_str());
}

}  // namespace folio
