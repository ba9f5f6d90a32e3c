// Tokens as replies print them beside their log-probabilities (protocol spec 5.5, 5.7).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/mailbox.h"
#include "server/reply_json.h"
#include "tokenizer/tokenizer.h"

namespace folio {

// Log-probabilities are floored here: JSON has no infinity.
constexpr float kLeastLogprob = -9999;

// As a number that prints with the digits that a float needs, equal for equal floats.
double printed_logprob(float logprob);

// The token's text; `as_id`: "token_id:N"; bytes that are not UTF-8: "bytes:\xe6\xaf".
std::string completion_token(const Tokenizer& tokenizer, int32_t id, bool as_id);

// {"token", "logprob", "bytes"}: with replacement characters where the bytes are not UTF-8.
ReplyJson chat_token(const Tokenizer& tokenizer, int32_t id, float logprob, bool as_id);

// An entry of logprobs.content: the token with its `alternatives` most likely ones.
ReplyJson chat_logprob(const Tokenizer& tokenizer, const TokenNews& token, int32_t alternatives, bool as_id);

// The `prompt_logprobs` of a prompt of which `tokens` are the tokens 1 .. n-1: null for the first, then an object that
// has the token and its `alternatives` most likely ones by their ids.
ReplyJson prompt_logprobs(const Tokenizer& tokenizer, const std::vector<TokenNews>& tokens, int32_t alternatives);

// Characters in well-formed UTF-8.
int64_t count_characters(std::string_view text);

}  // namespace folio
