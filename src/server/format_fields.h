// What the text of an answer must look like: "response_format" and "structured_outputs" (protocol spec 3.5, 5.3).
#pragma once

#include <optional>
#include <string>

#include "protocol/grammar.h"
#include "server/fields.h"

namespace folio {

// {"type": "text" | "json_object" | "json_schema"}, the schema under "json_schema" as in chat completions or beside the
// type as in responses. Returns what the model may be shown of it. Throws ApiError(400).
std::optional<Json> read_response_format(const Json& format, const std::string& field, GrammarSpec& spec);

// The request's "response_format" or vLLM's "structured_outputs", of which there may be one constraint: json,
// json_object, regex or choice. Returns what the model may be shown of a response format. Throws ApiError(400).
std::optional<Json> read_format(const Fields& fields, GrammarSpec& spec);

}  // namespace folio
