// JSON Schema read into a form from which grammars are made: references followed, unions taken apart, what is not
// supported refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "protocol/grammar_keywords.h"
#include "protocol/json.h"

namespace folio {

// A schema and where it stands, "#/properties/a", for messages. `json` null: any value.
struct SchemaPlace {
  const Json* json = nullptr;
  std::string path = "#";
};

// Keywords that hold together: of a schema and of all that it takes in by reference or "allOf".
struct SchemaKeywords {
  std::map<std::string, SchemaPlace, std::less<>> values;  // but for those below
  std::optional<std::vector<JsonType>> types;
  struct Property {
    std::string name;
    SchemaPlace schema;
  };
  std::vector<Property> properties;  // in the order of the schema
  std::map<std::string, size_t, std::less<>> property_index;
  std::set<std::string, std::less<>> required;
  bool never = false;      // the schema false is among them
  int object_schemas = 0;  // schemas that have properties or say what else there may be

  const SchemaPlace* find(std::string_view key) const {
    const auto at = values.find(key);
    return at == values.end() ? nullptr : &at->second;
  }
  const Property* find_property(std::string_view name) const {
    const auto at = property_index.find(name);
    return at == property_index.end() ? nullptr : &properties[at->second];
  }
  bool is_closed() const {
    const SchemaPlace* additional = find("additionalProperties");
    return additional != nullptr && additional->json->boolean() == false && find("patternProperties") == nullptr;
  }
  size_t size() const { return values.size() + properties.size() + required.size(); }
};

// One of the kinds of value that a schema allows: all values of a type under the keywords, or one given value.
struct SchemaVariant {
  JsonType type = JsonType::kNull;
  const Json* literal = nullptr;  // the one value
  SchemaKeywords keywords = {};   // those that speak of the type
  std::string path = "#";
};

// Not thread-safe.
class SchemaDocument {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  static constexpr int kMaxDepth = 64;
  static constexpr size_t kMaxVariants = 4096;
  static constexpr size_t kMaxOneOf = 256;  // variants of a "oneOf"

  // Throws Error(kInvalidArgument) when `text` is not JSON or beyond the limits.
  explicit SchemaDocument(std::string_view text);

  SchemaPlace root() const { return {&root_, "#"}; }

  // Follows references that stand alone, so that places with the same schema are the same place.
  SchemaPlace resolved(SchemaPlace place) const;

  // The schema at `place` as text, without titles and the like: equal texts in a document allow the same values.
  static std::string essence(const SchemaPlace& place);

  // All kinds of value that the schema at `place` allows; none when it allows nothing. Throws Error(kInvalidArgument)
  // with the place for keywords that are malformed or not supported, references that lead nowhere or in a circle, and
  // unions whose alternatives cannot be told apart where they must be ("oneOf").
  std::vector<SchemaVariant> variants(const SchemaPlace& place) const;

 private:
  class Collector;
  SchemaPlace target(const Json& reference, const std::string& path) const;

  Json root_;
  mutable std::map<std::string, const Json*> targets_;  // of the references followed so far
};

// Fails with the place in front.
template <typename... Parts>
[[noreturn]] void fail_schema(const std::string& path, const Parts&... parts) {
  fail(ErrorCode::kInvalidArgument, "the schema at ", path, ": ", parts...);
}

// The path of a member.
std::string schema_child(const std::string& path, std::string_view key);

}  // namespace folio
