// Strings, numbers and counts under the keywords of a schema.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/grammar_chars.h"
#include "protocol/grammar_schema.h"

namespace folio {

// The value of a keyword that counts something; nothing when it is not there. Throws Error(kInvalidArgument).
std::optional<int64_t> count_keyword(const SchemaKeywords& keywords, std::string_view key);

// The strings that minLength, maxLength, pattern and format allow. Throws Error(kInvalidArgument) with the place when a
// keyword is malformed or not supported, or all of them together are too large.
CharAutomaton string_text(const SchemaKeywords& keywords, const std::string& path);

// The numbers that minimum, maximum, exclusiveMinimum, exclusiveMaximum and multipleOf allow. Throws likewise.
CharAutomaton number_text(const SchemaKeywords& keywords, bool integer, const std::string& path);

// The pattern of a "format"; nothing when it is not supported.
std::optional<std::string> format_pattern(std::string_view format);

}  // namespace folio
