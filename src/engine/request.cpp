#include "engine/request.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/hidden_rows.h"
#include "model/model_files.h"

namespace folio {

void check_sampling(const Request& request, int64_t vocab) {
  const SamplingParams& sampling = request.sampling;
  const auto refuse = [](const auto&... parts) { fail(ErrorCode::kInvalidArgument, parts...); };
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature)) {
    refuse("temperature ", sampling.temperature, " must be 0 or more");
  }
  if (sampling.top_k < -1) refuse("top_k ", sampling.top_k, " must be a number of tokens, or 0 or -1 for all");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) refuse("top_p ", sampling.top_p, " must be above 0 and at most 1");
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) refuse("min_p ", sampling.min_p, " must be from 0 to 1");
  if (!(request.repetition_penalty > 0) || !std::isfinite(request.repetition_penalty)) {
    refuse("repetition_penalty ", request.repetition_penalty, " must be above 0; 1 is none");
  }
  const auto check_penalty = [&](const char* field, float penalty) {
    if (!(penalty >= -2 && penalty <= 2)) refuse(field, " ", penalty, " must be from -2 to 2");
  };
  check_penalty("frequency_penalty", request.frequency_penalty);
  check_penalty("presence_penalty", request.presence_penalty);
  if (std::ssize(request.logit_bias) > kMaxLogitBias) {
    refuse("logit_bias has ", request.logit_bias.size(), " entries, at most ", kMaxLogitBias, " are possible");
  }
  for (const LogitDelta& bias : request.logit_bias) {
    if (bias.id < 0 || bias.id >= vocab) {
      refuse("logit_bias: token id ", bias.id, " is not in the vocabulary: ids are 0 to ", vocab - 1);
    }
    if (!(bias.delta >= -100 && bias.delta <= 100)) {
      refuse("logit_bias of token id ", bias.id, ", ", bias.delta, ", must be from -100 to 100");
    }
  }
  const int64_t most = std::min<int64_t>(kMaxTopLogprobs, vocab);
  if (request.logprobs < 0 || request.logprobs > most) {
    refuse("logprobs ", request.logprobs, " must be from 0 to ", most);
  }
  if (std::ssize(request.stop_ids) > kMaxStopIds) {
    refuse("stop_token_ids has ", request.stop_ids.size(), " entries, at most ", kMaxStopIds, " are possible");
  }
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    refuse("min_tokens ", request.min_tokens, " must be from 0 to max_tokens, ", request.max_tokens);
  }
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kRefused:
      return "refused";
    case FinishReason::kError:
      return "error";
  }
  return "?";
}

void check_tokens(std::span<const int32_t> prompt, const Config& config) {
  if (prompt.empty()) fail(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token");
  for (const int32_t id : prompt) {
    if (id < 0 || id >= config.vocab_size) {
      fail(ErrorCode::kInvalidArgument, "token id ", id, " is not in the vocabulary: ids are 0 to ",
           config.vocab_size - 1);
    }
  }
}

void check_prompt(std::span<const int32_t> prompt, const Config& config, int64_t max_model_len) {
  check_tokens(prompt, config);
  if (std::ssize(prompt) >= max_model_len) {
    fail(ErrorCode::kInvalidArgument, "the prompt has ", prompt.size(), " tokens and the context holds ", max_model_len,
         ": shorten the prompt, or raise --max-model-len if the model allows it");
  }
}

void check_request(const Request& request, const Config& config) {
  if (request.sink == nullptr) fail(ErrorCode::kInvalidArgument, "the request has no sink for its answer");
  check_tokens(request.prompt, config);
  if (request.max_tokens < 1) {
    fail(ErrorCode::kInvalidArgument, "max_tokens ", request.max_tokens, " must be at least 1");
  }
  check_sampling(request, config.vocab_size);
  if (request.choices < 1 || request.choices > kMaxChoices) {
    fail(ErrorCode::kInvalidArgument, "n ", request.choices, " must be from 1 to ", kMaxChoices);
  }
  for (const std::string& tensor : request.hidden_rows) check_hidden_tensor(tensor, config);
  if (!request.hidden_rows.empty() && request.choices > 1) {
    fail(ErrorCode::kInvalidArgument, "hidden rows are those of one choice, not of n ", request.choices);
  }
  if (!request.policies.empty() && std::ssize(request.policies) != request.choices) {
    fail(ErrorCode::kInvalidArgument, request.policies.size(), " policies for ", request.choices, " choices");
  }
}

}  // namespace folio
