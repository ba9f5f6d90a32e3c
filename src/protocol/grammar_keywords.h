// The vocabulary of JSON Schema: which keywords mean something here, and of which type of value.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "protocol/json.h"

namespace folio {

enum class JsonType : uint8_t { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };

// A keyword with a meaning here. `type`: of the only values that it speaks of.
struct KnownKeyword {
  std::string_view key;
  std::optional<JsonType> type;
};

// Null for others; "type" is none of them.
const KnownKeyword* known_keyword(std::string_view key);

// A keyword that allows or forbids no value, or that others read.
bool allows_everything(std::string_view key);

// A keyword that forbids values in a way that is not supported.
bool is_refused(std::string_view key);

// The type that `type` names.
std::optional<JsonType> type_named(std::string_view name);

// The type of a given value; a whole number is an integer.
JsonType type_of(const Json& value);

// Whether every value of type `narrow` is one of `wide`.
bool covers(JsonType wide, JsonType narrow);

}  // namespace folio
