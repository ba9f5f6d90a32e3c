#include "protocol/grammar_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace folio {
namespace {

// Keywords that allow or forbid no value, or that others read.
constexpr std::array<std::string_view, 24> kSilent = {"title",
                                                      "description",
                                                      "default",
                                                      "examples",
                                                      "example",
                                                      "$schema",
                                                      "$id",
                                                      "id",
                                                      "$comment",
                                                      "$defs",
                                                      "definitions",
                                                      "$anchor",
                                                      "$vocabulary",
                                                      "deprecated",
                                                      "readOnly",
                                                      "writeOnly",
                                                      "contentEncoding",
                                                      "contentMediaType",
                                                      "contentSchema",
                                                      "discriminator",
                                                      "externalDocs",
                                                      "xml",
                                                      "strict",
                                                      "name"};

constexpr std::array<std::string_view, 16> kRefused = {"not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "dependentRequired",
                                                       "dependentSchemas",
                                                       "dependencies",
                                                       "contains",
                                                       "minContains",
                                                       "maxContains",
                                                       "$dynamicRef",
                                                       "$dynamicAnchor",
                                                       "$recursiveRef",
                                                       "$recursiveAnchor",
                                                       "extends",
                                                       "disallow"};

constexpr std::array<KnownKeyword, 28> kKnown = {{
    {"enum", {}},
    {"const", {}},
    {"anyOf", {}},
    {"oneOf", {}},
    {"minLength", JsonType::kString},
    {"maxLength", JsonType::kString},
    {"pattern", JsonType::kString},
    {"format", {}},
    {"minimum", JsonType::kNumber},
    {"maximum", JsonType::kNumber},
    {"exclusiveMinimum", JsonType::kNumber},
    {"exclusiveMaximum", JsonType::kNumber},
    {"multipleOf", JsonType::kNumber},
    {"items", JsonType::kArray},
    {"prefixItems", JsonType::kArray},
    {"additionalItems", JsonType::kArray},
    {"unevaluatedItems", JsonType::kArray},
    {"minItems", JsonType::kArray},
    {"maxItems", JsonType::kArray},
    {"uniqueItems", JsonType::kArray},
    {"properties", JsonType::kObject},
    {"required", JsonType::kObject},
    {"additionalProperties", JsonType::kObject},
    {"unevaluatedProperties", JsonType::kObject},
    {"patternProperties", JsonType::kObject},
    {"propertyNames", JsonType::kObject},
    {"minProperties", JsonType::kObject},
    {"maxProperties", JsonType::kObject},
}};

}  // namespace

bool allows_everything(std::string_view key) { return std::ranges::find(kSilent, key) != kSilent.end(); }

bool is_refused(std::string_view key) { return std::ranges::find(kRefused, key) != kRefused.end(); }

const KnownKeyword* known_keyword(std::string_view key) {
  const auto at = std::ranges::find(kKnown, key, &KnownKeyword::key);
  return at == kKnown.end() ? nullptr : &*at;
}

std::optional<JsonType> type_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, JsonType>, 7> kTypes = {{{"null", JsonType::kNull},
                                                                            {"boolean", JsonType::kBoolean},
                                                                            {"integer", JsonType::kInteger},
                                                                            {"number", JsonType::kNumber},
                                                                            {"string", JsonType::kString},
                                                                            {"array", JsonType::kArray},
                                                                            {"object", JsonType::kObject}}};
  const auto at = std::ranges::find(kTypes, name, &std::pair<std::string_view, JsonType>::first);
  if (at == kTypes.end()) return std::nullopt;
  return at->second;
}

JsonType type_of(const Json& value) {
  if (value.is_null()) return JsonType::kNull;
  if (value.boolean()) return JsonType::kBoolean;
  if (value.string() != nullptr) return JsonType::kString;
  if (value.array() != nullptr) return JsonType::kArray;
  if (value.object() != nullptr) return JsonType::kObject;
  const double number = value.number().value_or(0);
  return number == std::floor(number) ? JsonType::kInteger : JsonType::kNumber;
}

bool covers(JsonType wide, JsonType narrow) {
  return wide == narrow || (wide == JsonType::kNumber && narrow == JsonType::kInteger);
}

}  // namespace folio
