#include "protocol/grammar_schema.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace folio {
namespace {

constexpr int kMaxReferences = 64;        // followed inside each other for one schema
constexpr int kMaxSchemas = 20'000;       // looked at for one schema
constexpr size_t kMaxKeywords = 200'000;  // copied for one schema: those beside a union go to each alternative
constexpr size_t kMaxAlternatives = 1024;

std::string escaped_pointer(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
  return out;
}

std::string unescaped_pointer(std::string_view part) {
  std::string percent, out;
  for (size_t i = 0; i < part.size(); ++i) {
    const auto hex = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
    if (part[i] == '%' && i + 2 < part.size() && std::isxdigit(static_cast<unsigned char>(part[i + 1])) != 0 &&
        std::isxdigit(static_cast<unsigned char>(part[i + 2])) != 0) {
      percent.push_back(static_cast<char>(hex(part[i + 1]) * 16 + hex(part[i + 2])));
      i += 2;
    } else {
      percent.push_back(part[i]);
    }
  }
  for (size_t i = 0; i < percent.size(); ++i) {
    if (percent[i] == '~' && i + 1 < percent.size() && (percent[i + 1] == '0' || percent[i + 1] == '1')) {
      out.push_back(percent[++i] == '0' ? '~' : '/');
    } else {
      out.push_back(percent[i]);
    }
  }
  return out;
}

const std::string& string_of(const SchemaPlace& place) {
  if (place.json->string() == nullptr) {
    fail_schema(place.path, "must be a string, but it is ", place.json->type_name());
  }
  return *place.json->string();
}

const Json::Array& array_of(const Json& json, const std::string& path) {
  if (json.array() == nullptr) fail_schema(path, "must be an array, but it is ", json.type_name());
  return *json.array();
}

const Json::Object& object_of(const Json& json, const std::string& path) {
  if (json.object() == nullptr) fail_schema(path, "must be an object, but it is ", json.type_name());
  return *json.object();
}

}  // namespace

// Gathers the keywords of a schema and of what it refers to, and takes the unions apart.
class SchemaDocument::Collector {
 public:
  explicit Collector(const SchemaDocument& document) : document_(document) {}

  // Adds the keywords of the schema at `place` to `into`.
  void collect(const SchemaPlace& place, SchemaKeywords& into) {
    const Nesting nesting(*this, place);
    if (place.json == nullptr || place.json->boolean() == true) return;
    if (place.json->boolean() == false) {
      into.never = true;
      return;
    }
    const Json::Object& members = object_of(*place.json, place.path);
    for (const auto& [key, value] : members) add(key, {&value, schema_child(place.path, key)}, into);
    if (place.json->find("properties") == nullptr && place.json->find("additionalProperties") == nullptr) return;
    if (++into.object_schemas > 1 && into.find("additionalProperties") != nullptr) {
      fail_schema(place.path, "\"additionalProperties\" beside the properties of another schema is not supported");
    }
  }

  void variants(const SchemaPlace& place, SchemaKeywords base, std::vector<SchemaVariant>& out) {
    const Nesting nesting(*this, place);
    collect(place, base);
    for (const char* key : {"anyOf", "oneOf"}) {
      if (base.find(key) != nullptr) return alternatives(key, std::move(base), out);
    }
    if (!base.never) add_variants(base, place.path, out);
  }

 private:
  // Bounds how deep schemas take in others, and how many.
  class Nesting {
   public:
    Nesting(Collector& collector, const SchemaPlace& place) : depth_(collector.depth_) {
      if (++depth_ > kMaxReferences) fail_schema(place.path, "it refers to itself, or through too many other schemas");
      if (++collector.schemas_ > kMaxSchemas)
        fail_schema(place.path, "it takes in more than ", kMaxSchemas, " schemas");
    }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };

  void add(const std::string& key, const SchemaPlace& value, SchemaKeywords& into) {
    if (key == "$ref") return collect(document_.target(*value.json, value.path), into);
    if (key == "allOf") {
      const Json::Array& parts = array_of(*value.json, value.path);
      for (size_t i = 0; i < parts.size(); ++i) collect({&parts[i], schema_child(value.path, std::to_string(i))}, into);
      return;
    }
    if (is_refused(key)) {
      fail_schema(value.path.substr(0, value.path.rfind('/')), "the keyword \"", key, "\" is not supported");
    }
    // What JSON Schema does not know, it does not mean to restrict.
    if (allows_everything(key) || (key != "type" && known_keyword(key) == nullptr)) return;
    if (key == "type") return add_types(value, into);
    if (key == "properties") return add_properties(value, into);
    if (key == "required") return add_required(value, into);
    const auto [at, added] = into.values.try_emplace(key, value);
    if (added || *at->second.json == *value.json) return;
    fail_schema(value.path, "\"", key, "\" has another value at ", at->second.path, "; both at once are not supported");
  }

  void add_properties(const SchemaPlace& value, SchemaKeywords& into) {
    for (const auto& [name, schema] : object_of(*value.json, value.path)) {
      const SchemaPlace place{&schema, schema_child(value.path, name)};
      const SchemaKeywords::Property* known = into.find_property(name);
      if (known == nullptr) {
        into.property_index.emplace(name, into.properties.size());
        into.properties.push_back({name, place});
      } else if (!(*known->schema.json == schema)) {
        fail_schema(place.path, "the property has another schema at ", known->schema.path,
                    "; both at once are not supported");
      }
    }
  }

  void add_required(const SchemaPlace& value, SchemaKeywords& into) {
    for (const Json& name : array_of(*value.json, value.path)) into.required.insert(string_of({&name, value.path}));
  }

  std::vector<JsonType> types_in(const Json& json, const std::string& path) const {
    std::vector<JsonType> types;
    const auto add_type = [&](const Json& name) {
      const auto type = type_named(string_of({&name, path}));
      if (!type) fail_schema(path, "there is no type \"", *name.string(), "\"");
      if (std::ranges::count(types, *type) == 0) types.push_back(*type);
    };
    if (json.array() == nullptr) {
      add_type(json);
    } else {
      for (const Json& name : *json.array()) add_type(name);
    }
    if (types.empty()) fail_schema(path, "it names no type");
    if (std::ranges::count(types, JsonType::kNumber) > 0) std::erase(types, JsonType::kInteger);
    return types;
  }

  // Those that both name.
  void add_types(const SchemaPlace& value, SchemaKeywords& into) const {
    const std::vector<JsonType> types = types_in(*value.json, value.path);
    if (!into.types) {
      into.types = types;
      return;
    }
    std::vector<JsonType> common;
    for (const JsonType left : *into.types) {
      for (const JsonType right : types) {
        if (covers(left, right)) {
          common.push_back(right);
        } else if (covers(right, left)) {
          common.push_back(left);
        }
      }
    }
    into.types = std::move(common);
  }

  void alternatives(const std::string& key, SchemaKeywords base, std::vector<SchemaVariant>& out) {
    const SchemaPlace list = base.values.extract(key).mapped();
    const Json::Array& parts = array_of(*list.json, list.path);
    if (parts.empty()) fail_schema(list.path, "it has no alternatives");
    if (parts.size() > kMaxAlternatives) fail_schema(list.path, "it has more than ", kMaxAlternatives, " alternatives");
    std::vector<size_t> begin;
    for (size_t i = 0; i < parts.size(); ++i) {
      begin.push_back(out.size());
      count_copy(base, list.path);
      variants({&parts[i], schema_child(list.path, std::to_string(i))}, base, out);
    }
    if (key == "oneOf") check_disjoint(out, begin, list.path);
  }

  // Of "oneOf", a value must be valid under one alternative only; as a grammar allows what any allows, what it writes
  // for one must not be valid under another.
  void check_disjoint(std::vector<SchemaVariant>& all, std::vector<size_t> begin, const std::string& path) {
    begin.push_back(all.size());
    if (begin.back() - begin.front() > kMaxOneOf) {
      fail_schema(path, "it allows more than ", kMaxOneOf, " kinds of value; use \"anyOf\"");
    }
    for (size_t i = 0; i + 1 < begin.size(); ++i) {
      for (size_t a = begin[i]; a < begin[i + 1]; ++a) {
        for (size_t b = begin[i + 1]; b < all.size(); ++b) {
          if (!disjoint(all[a], all[b])) {
            fail_schema(path, "some value may be valid under more than one alternative; use \"anyOf\", or give each a ",
                        "required property with a \"const\" of its own");
          }
        }
      }
    }
  }

  // A property with given values that differ tells objects apart once both must have it, so both get it.
  bool disjoint(SchemaVariant& a, SchemaVariant& b) {
    if (!covers(a.type, b.type) && !covers(b.type, a.type)) return true;
    if (a.literal != nullptr && b.literal != nullptr) return json_text(*a.literal) != json_text(*b.literal);
    if (a.type != JsonType::kObject || b.type != JsonType::kObject) return false;
    for (const auto& property : a.keywords.properties) {
      const SchemaKeywords::Property* other = b.keywords.find_property(property.name);
      if (other == nullptr || !different_strings(property.schema, other->schema)) continue;
      a.keywords.required.insert(property.name);
      b.keywords.required.insert(property.name);
      return true;
    }
    return lacks_required(a.keywords, b.keywords) && lacks_required(b.keywords, a.keywords);
  }

  // Objects that are written for `a` have no member that `b` requires, or one that `b` forbids.
  static bool lacks_required(const SchemaKeywords& a, const SchemaKeywords& b) {
    const SchemaPlace* additional = a.find("additionalProperties");
    const bool only_own =
        a.is_closed() || (additional == nullptr && !a.properties.empty() && a.find("patternProperties") == nullptr);
    const auto unknown = [](const SchemaKeywords& keywords, const std::string& name) {
      return keywords.find_property(name) == nullptr && !keywords.required.contains(name);
    };
    if (only_own && std::ranges::any_of(b.required, [&](const auto& name) { return unknown(a, name); })) return true;
    return b.is_closed() && std::ranges::any_of(a.required, [&](const auto& name) { return unknown(b, name); });
  }

  static bool different_strings(const SchemaPlace& a, const SchemaPlace& b) {
    const auto strings = [](const SchemaPlace& place) {
      std::set<std::string> texts;
      const auto take = [&](const Json* json) {
        if (json != nullptr && json->string() != nullptr) texts.insert(*json->string());
      };
      take(place.json->find("const"));
      const Json* list = place.json->find("enum");
      if (list == nullptr || list->array() == nullptr) return texts;
      for (const Json& value : *list->array()) {
        if (value.string() == nullptr) return std::set<std::string>();
        take(&value);
      }
      return texts;
    };
    const auto left = strings(a), right = strings(b);
    return !left.empty() && !right.empty() &&
           std::ranges::none_of(left, [&](const std::string& text) { return right.contains(text); });
  }

  void add_variants(const SchemaKeywords& keywords, const std::string& path, std::vector<SchemaVariant>& out) {
    const SchemaPlace* list = keywords.find("enum");
    const SchemaPlace* one = keywords.find("const");
    if (list == nullptr && one == nullptr) {
      for (const JsonType type : types_of(keywords)) {
        count_copy(keywords, path);
        add_variant({type, nullptr, keywords, path}, out);
      }
      return;
    }
    if (list != nullptr && one != nullptr) {
      const auto& values = array_of(*list->json, list->path);
      if (std::ranges::find(values, *one->json) == values.end()) fail_schema(one->path, "it is not in \"enum\"");
      list = nullptr;
    }
    check_alone(keywords, path);
    const std::vector<JsonType> types = types_of(keywords);
    const auto add_literal = [&](const Json& value) {
      const JsonType type = type_of(value);
      if (std::ranges::none_of(types, [&](JsonType wide) { return covers(wide, type); })) return;
      add_variant({type, &value, {}, path}, out);
    };
    if (list == nullptr) return add_literal(*one->json);
    for (const Json& value : array_of(*list->json, list->path)) add_literal(value);
  }

  void count_copy(const SchemaKeywords& keywords, const std::string& path) {
    copied_ += keywords.size();
    if (copied_ > kMaxKeywords) fail_schema(path, "it combines more than ", kMaxKeywords, " keywords and properties");
  }

  void add_variant(SchemaVariant variant, std::vector<SchemaVariant>& out) {
    if (out.size() >= kMaxVariants) fail_schema(variant.path, "it allows more than ", kMaxVariants, " kinds of value");
    out.push_back(std::move(variant));
  }

  // Beside given values stands nothing but their type: whether the values obey more is not looked at.
  static void check_alone(const SchemaKeywords& keywords, const std::string& path) {
    for (const auto& [key, value] : keywords.values) {
      if (key != "enum" && key != "const" && key != "format") {
        fail_schema(path, "\"", key, "\" beside \"enum\" or \"const\" is not supported; leave out the values instead");
      }
    }
    if (!keywords.properties.empty() || !keywords.required.empty()) {
      fail_schema(path, "\"properties\" beside \"enum\" or \"const\" is not supported");
    }
  }

  // Those that are named; else those that the keywords speak of; else all.
  std::vector<JsonType> types_of(const SchemaKeywords& keywords) const {
    if (keywords.types) return *keywords.types;
    std::set<JsonType> types;
    for (const auto& [key, value] : keywords.values) {
      if (const auto type = known_keyword(key)->type) types.insert(*type);
      if (key == "format") types.insert(JsonType::kString);
    }
    if (!keywords.properties.empty() || !keywords.required.empty()) types.insert(JsonType::kObject);
    if (!types.empty()) return {types.begin(), types.end()};
    return {JsonType::kNull,   JsonType::kBoolean, JsonType::kNumber,
            JsonType::kString, JsonType::kArray,   JsonType::kObject};
  }

  const SchemaDocument& document_;
  int depth_ = 0;
  int schemas_ = 0;
  size_t copied_ = 0;
};

SchemaDocument::SchemaDocument(std::string_view text) {
  if (text.size() > kMaxBytes) fail(ErrorCode::kInvalidArgument, "the schema is larger than ", kMaxBytes, " bytes");
  root_ = Json::parse(text, {.depth = kMaxDepth});
}

SchemaPlace SchemaDocument::target(const Json& reference, const std::string& path) const {
  const std::string& text = string_of({&reference, path});
  if (const auto known = targets_.find(text); known != targets_.end()) return {known->second, text};
  if (!text.starts_with('#') || (text.size() > 1 && text[1] != '/')) {
    fail_schema(path, "only references of the form \"#/...\" are supported, not \"", text, "\"");
  }
  const Json* at = &root_;
  std::string_view rest = std::string_view(text).substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string key = unescaped_pointer(rest.substr(0, end));
    rest.remove_prefix(end);
    const Json* next = at->find(key);
    if (at->array() != nullptr && !key.empty() && key.size() < 6 && std::ranges::all_of(key, ::isdigit)) {
      const size_t index = std::stoul(key);
      next = index < at->array()->size() ? &(*at->array())[index] : nullptr;
    }
    if (next == nullptr) fail_schema(path, "there is nothing at \"", text, "\"");
    at = next;
  }
  targets_.emplace(text, at);
  return {at, text};
}

SchemaPlace SchemaDocument::resolved(SchemaPlace place) const {
  for (int i = 0; i < kMaxReferences && place.json != nullptr; ++i) {
    const Json::Object* members = place.json->object();
    if (members == nullptr) return place;
    const Json* reference = nullptr;
    for (const auto& [key, value] : *members) {
      if (key == "$ref") {
        reference = &value;
      } else if (!allows_everything(key)) {
        return place;
      }
    }
    if (reference == nullptr) return place;
    place = target(*reference, schema_child(place.path, "$ref"));
  }
  return place;
}

std::string SchemaDocument::essence(const SchemaPlace& place) {
  if (place.json == nullptr || place.json->boolean() == true) return "{}";
  const Json::Object* members = place.json->object();
  if (members == nullptr) return json_text(*place.json);
  Json::Object kept;
  for (const auto& member : *members) {
    if (!allows_everything(member.key)) kept.push_back(member);
  }
  return json_text(Json(std::move(kept)));
}

std::vector<SchemaVariant> SchemaDocument::variants(const SchemaPlace& place) const {
  std::vector<SchemaVariant> result;
  Collector(*this).variants(place, {}, result);
  return result;
}

std::string schema_child(const std::string& path, std::string_view key) { return path + "/" + escaped_pointer(key); }

}  // namespace folio
