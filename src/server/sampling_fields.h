// The fields of a request that the OpenAI APIs share: model, sampling, limits, stops (protocol spec 5.3, 5.12).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/backend.h"
#include "server/fields.h"

namespace folio {

// The name of the model that a request asks for; the first one when it names none. Throws ApiError(404).
std::string requested_model(const Fields& fields, const ServedModel& model);

// Sampling, penalties, biases, n, seed, stop ids, min_tokens, ignore_eos and Folio's `exact` into `request`. A request
// without a seed gets a random one. Throws ApiError(400).
void read_sampling(const Fields& fields, const ServedModel& model, Request& request);

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
