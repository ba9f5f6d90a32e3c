// JSON that the server writes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "protocol/json.h"

namespace folio {

using ReplyJson = nlohmann::ordered_json;

// One line, without spaces; ill-formed UTF-8 becomes U+FFFD.
std::string dump(const ReplyJson& value);

// Appends `text`, which is well-formed UTF-8, as a JSON string.
void append_quoted(std::string_view text, std::string& out);

// A value that a client sent, to be sent back.
ReplyJson to_reply(const Json& value);

// A random id, such as "call_" and 24 hexadecimal digits.
std::string random_id(std::string_view prefix);

// Seconds since 1970.
int64_t unix_seconds();

}  // namespace folio
