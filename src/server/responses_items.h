// The items and tools of /v1/responses as messages and tools of a chat (protocol spec 5.9).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "protocol/messages.h"
#include "server/fields.h"
#include "server/response_store.h"

namespace folio {

// Appends what an "input" says, a string or a list of items, of which some may refer to items of `stored` responses.
// Reasoning, messages and calls of the assistant in a row are one turn. Throws ApiError(400, 404).
void read_input(const Json& input, DeveloperRole developer, const ResponseStore& stored,
                std::vector<Message>& messages);

constexpr const char* kFreeText = "input";  // the argument of a custom tool

struct ResponseTools {
  std::vector<Tool> tools;
  std::set<std::string> custom;  // names of those that take one free text
};
// Functions, namespaces of functions and custom tools; hosted tools are left out. Throws ApiError or FieldError.
ResponseTools read_response_tools(const Fields& fields);

}  // namespace folio
