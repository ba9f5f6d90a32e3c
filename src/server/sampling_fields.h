// The fields of a request that the OpenAI APIs share: model, sampling, limits, stops (protocol spec 5.3, 5.12).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/backend.h"
#include "server/fields.h"

namespace folio {

// The name of the model that a request asks for; the first one when it names none. Throws ApiError(404).
std::string requested_model(const Fields& fields, const ServedModel& model);

// Sampling, penalties, biases, n, seed, stop ids, min_tokens, ignore_eos, cache_salt and Folio's `exact` into
// `request`. A request without a seed gets a random one. Throws ApiError(400), also for a `priority` other than 0.
void read_sampling(const Fields& fields, const ServedModel& model, Request& request);

// The token sequences of "bad_words", each word as it is spelled and, where it does not begin with a space, behind one.
// Null: none. Throws ApiError(400).
std::shared_ptr<const std::vector<std::vector<int32_t>>> read_bad_words(const Fields& fields, const ServedModel& model);

// "truncate_prompt_tokens": of a longer prompt the last so many tokens are taken; -1: as many as fit beside the answer.
std::optional<int64_t> read_truncation(const Fields& fields);
// `asked`: tokens of the answer, if the request says it.
void truncate_prompt(std::vector<int32_t>& prompt, std::optional<int64_t> truncation, std::optional<int64_t> asked,
                     int64_t max_model_len);

struct StopFields {
  std::vector<std::string> strings;
  bool include = false;      // the stop string is part of the text
  bool skip_special = true;  // the hidden tokens give no text
};
// `field` has the strings: a string, or an array of them. Throws ApiError(400).
StopFields read_stops(const Fields& fields, std::string_view field = "stop");

// Sets request.max_tokens for its prompt: `asked`, else `otherwise` as far as the context goes; 0: all of it. Throws
// ApiError(400) when the prompt, or with what was asked for, is longer than the context.
void limit_tokens(Request& request, std::optional<int64_t> asked, int64_t otherwise, int64_t max_model_len);

// Throws ApiError(400) for a text that must have more tokens than the context, before it is tokenised.
void check_text_length(size_t bytes, const ServedModel& model);

}  // namespace folio
