// JSON documents from outside: bounded before they are built.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace folio {

// Containers inside containers that a document may have. The deepest published file has 4.
constexpr int kMaxJsonDepth = 16;

// The document in `text`. Throws Error(code) that names `origin` and the place when it is not JSON, is nested deeper
// than kMaxJsonDepth, has a key twice in one object, or has a number that no double can hold.
nlohmann::json parse_json(std::string_view text, const std::string& origin, ErrorCode code);

}  // namespace folio
