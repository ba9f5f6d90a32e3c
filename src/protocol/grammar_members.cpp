#include <algorithm>

#include "protocol/grammar_json.h"
#include "protocol/grammar_regex.h"
#include "protocol/grammar_values.h"

namespace folio {
namespace {

bool is_false(const SchemaPlace* place) { return place != nullptr && place->json->boolean() == false; }

constexpr size_t kMaxPatterns = 32;  // of names, in one schema

// The names that "propertyNames" allows.
CharAutomaton allowed_names(const SchemaDocument& document, const SchemaPlace& names) {
  CharAutomaton result;
  std::vector<std::string> given;
  size_t patterns = 0;
  for (const SchemaVariant& variant : document.variants(names)) {
    if (variant.type != JsonType::kString) continue;
    if (variant.literal != nullptr) {
      given.push_back(*variant.literal->string());
      continue;
    }
    if (++patterns > kMaxPatterns) fail_schema(names.path, "it has more than ", kMaxPatterns, " alternatives");
    result = either(result, string_text(variant.keywords, variant.path));
  }
  return either(result, CharAutomaton::one_of(given)).trimmed();
}

void add_patterns(const SchemaPlace& patterns, const std::vector<std::string>& declared,
                  std::vector<ExtraKeys>& extra) {
  if (patterns.json->object() == nullptr) fail_schema(patterns.path, "must be an object");
  if (patterns.json->object()->size() > kMaxPatterns) {
    fail_schema(patterns.path, "it has more than ", kMaxPatterns, " patterns");
  }
  const CharAutomaton names_with_schema = CharAutomaton::one_of(declared);
  for (const auto& [pattern, schema] : *patterns.json->object()) {
    const std::string path = schema_child(patterns.path, pattern);
    CharAutomaton names = compile_regex(pattern, RegexMatch::kAnywhere);
    if (!intersection(names, names_with_schema).empty()) {
      fail_schema(path, "it matches a name that stands under \"properties\" or \"required\", which is not supported");
    }
    for (const ExtraKeys& other : extra) {
      if (!intersection(names, other.names).empty()) {
        fail_schema(path, "it and ", other.schema.path, " match a common name, which is not supported");
      }
    }
    extra.push_back({std::move(names), {&schema, path}});
  }
}

// Members beside those of `names`.
void add_extra_keys(const SchemaDocument& document, const SchemaKeywords& keywords,
                    const std::vector<std::string>& names, std::vector<ExtraKeys>& extra) {
  const SchemaPlace* patterns = keywords.find("patternProperties");
  const SchemaPlace* additional = keywords.find("additionalProperties");
  if (patterns != nullptr) add_patterns(*patterns, names, extra);
  // Where nothing is said of other members, objects with properties have none, and maps have any.
  const bool silent = additional == nullptr && (!keywords.properties.empty() || patterns != nullptr);
  if (is_false(additional) || silent) return;
  if (!extra.empty()) fail_schema(additional->path, "beside \"patternProperties\" only false is supported");
  CharAutomaton others = CharAutomaton::none_of(names);
  if (const SchemaPlace* allowed = keywords.find("propertyNames")) {
    others = intersection(others, allowed_names(document, *allowed));
  }
  extra.push_back({std::move(others), additional == nullptr ? SchemaPlace{} : *additional});
}

void check_counts(const ObjectMembers& members, const std::string& path) {
  const auto required = std::ranges::count_if(members.properties, &ObjectMembers::Property::required);
  const bool always_enough = members.least <= required;
  const bool never_many = members.most < 0 || (members.extra.empty() && std::ssize(members.properties) <= members.most);
  if (!always_enough || !never_many) {
    fail_schema(path, "\"minProperties\" and \"maxProperties\" are supported only where there are no \"properties\"");
  }
}

}  // namespace

ObjectMembers object_members(const SchemaDocument& document, const SchemaVariant& variant) {
  const SchemaKeywords& keywords = variant.keywords;
  const SchemaPlace* additional = keywords.find("additionalProperties");
  ObjectMembers members;
  std::vector<std::string> names;
  for (const auto& [name, schema] : keywords.properties) {
    names.push_back(name);
    const bool required = keywords.required.contains(name);
    if (!is_false(&schema) || required) members.properties.push_back({name, schema, required});
  }
  for (const std::string& name : keywords.required) {
    if (keywords.find_property(name) != nullptr) continue;
    if (is_false(additional)) fail_schema(variant.path, "\"", name, "\" is required, but no property");
    names.push_back(name);
    members.properties.push_back({name, additional == nullptr ? SchemaPlace{} : *additional, true});
  }
  add_extra_keys(document, keywords, names, members.extra);
  if (keywords.find("propertyNames") != nullptr && (!names.empty() || members.extra.size() != 1)) {
    fail_schema(keywords.find("propertyNames")->path, "is supported only where there are no \"properties\"");
  }
  const SchemaPlace* unevaluated = keywords.find("unevaluatedProperties");
  if (unevaluated != nullptr && !(is_false(unevaluated) && (members.extra.empty() || additional != nullptr))) {
    fail_schema(unevaluated->path, "is supported only as false, where no other members are allowed");
  }
  members.least = count_keyword(keywords, "minProperties").value_or(0);
  members.most = count_keyword(keywords, "maxProperties").value_or(-1);
  if (!members.properties.empty()) check_counts(members, variant.path);
  return members;
}

ArrayItems array_items(const SchemaVariant& variant) {
  const SchemaKeywords& keywords = variant.keywords;
  ArrayItems items{.least = count_keyword(keywords, "minItems").value_or(0),
                   .most = count_keyword(keywords, "maxItems").value_or(-1)};
  const SchemaPlace* first = keywords.find("prefixItems");
  const SchemaPlace* rest = keywords.find("items");
  // Before 2020 a list under "items" was what "prefixItems" is now, and "additionalItems" what "items" is.
  if (first == nullptr && rest != nullptr && rest->json->array() != nullptr) {
    first = rest;
    rest = keywords.find("additionalItems");
  }
  if (first != nullptr) {
    if (first->json->array() == nullptr) fail_schema(first->path, "must be an array");
    for (const Json& item : *first->json->array()) {
      items.first.push_back({&item, schema_child(first->path, std::to_string(items.first.size()))});
    }
  }
  if (rest != nullptr) items.rest = *rest;
  const auto listed = std::ssize(items.first);
  // Where nothing is said of further items, a list of the first ones is all there is, if it may be.
  const bool closed = is_false(rest) || (first != nullptr && rest == nullptr && items.least <= listed);
  if (closed && (items.most < 0 || items.most > listed)) items.most = listed;
  if (items.most >= 0 && items.least > items.most) fail_schema(variant.path, "no array can satisfy it");
  const SchemaPlace* unique = keywords.find("uniqueItems");
  if (unique != nullptr && unique->json->boolean() != false && (items.most < 0 || items.most > 1)) {
    fail_schema(unique->path, "\"uniqueItems\" is not supported");
  }
  const SchemaPlace* unevaluated = keywords.find("unevaluatedItems");
  if (unevaluated != nullptr && !(is_false(unevaluated) && (rest != nullptr || closed))) {
    fail_schema(unevaluated->path, "is supported only as false, beside \"items\" or \"prefixItems\"");
  }
  return items;
}

}  // namespace folio
