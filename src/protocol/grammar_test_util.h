// What the tests of grammars share: compilers over small vocabularies, answers drawn under the masks, and a check of
// JSON against a schema that knows nothing of automata.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "base/rng.h"
#include "protocol/grammar.h"
#include "tokenizer/tokenizer_test_util.h"
#include "tokenizer/utf8.h"

namespace folio {

constexpr int32_t kTestEos = 1;

// Bytes, some words of JSON and pieces that cross every border: of strings, members, characters.
inline Tokenizer grammar_tokenizer() {
  std::vector<std::pair<std::string, std::string>> merges;
  const auto word = [&](const std::string& text) {
    for (size_t i = 1; i < text.size(); ++i) {
      const std::pair merge(text.substr(0, i), text.substr(i, 1));
      if (std::ranges::find(merges, merge) == merges.end()) merges.push_back(merge);
    }
  };
  for (const char* text : {"true",     "false",        "null",     "name",         "abc",        "12",       "100",
                           "-1",       "0.",           "e+1",      "\",",          "\":",        "\"}",      "\", \"",
                           "\": \"",   "\"},",         "}]",       "[{\"",         "{\"",        "{}",       "[]",
                           "],",       "}}",           "\n  ",     "\n    \"",     "\\n",        "\\\"",     "\\u",
                           "\\ud83d",  "\xC3",         "\xA9\"",   "\u00e9",       "\u4e16",     "\xE4\xB8", "\x96\xE7",
                           "\xF0\x9F", "\x98\x80",     "\xEF\xBD", "\xEF\xBC\x9C", " parameter", "calls",    ">\n",
                           "</",       "\" string=\"", "a\"b",     "  ",           "2024-",      "@x.",      "://"}) {
    word(text);
  }
  return make_tokenizer(small_tokenizer(merges, {"<\uFF5CUser\uFF5C>", "<think>", "</think>", "\uFF5CDSML\uFF5C"}));
}

inline std::vector<uint64_t> mask_of(TokenPolicy& policy, int32_t vocab) {
  std::vector<uint64_t> bits((static_cast<size_t>(vocab) + 63) / 64, ~uint64_t{0});
  policy.mask(bits);
  return bits;
}

inline bool allows(const std::vector<uint64_t>& bits, int32_t id) {
  return (bits[static_cast<size_t>(id) / 64] >> (static_cast<size_t>(id) % 64) & 1) != 0;
}

inline std::vector<int32_t> allowed_ids(const std::vector<uint64_t>& bits, int32_t vocab) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab; ++id) {
    if (allows(bits, id)) ids.push_back(id);
  }
  return ids;
}

// Draws answers: any allowed token, but with a pull towards the end that grows with the length.
class AnswerSampler {
 public:
  AnswerSampler(const Tokenizer& tokenizer, uint64_t seed) : tokenizer_(&tokenizer), seed_(seed) {}

  // The ids of an answer without the end of sentence; empty and `ended` false when it did not end within `most` tokens.
  std::vector<int32_t> draw(TokenPolicy& policy, int most = 4000) {
    std::vector<int32_t> ids;
    ended = false;
    for (int i = 0; i < most; ++i) {
      const auto choices = allowed_ids(mask_of(policy, tokenizer_->vocab_size()), tokenizer_->vocab_size());
      if (choices.empty()) return ids;
      const int32_t id = pick(choices, std::min(0.15 + i / 200.0, 0.6));
      const bool stop = policy.accept(id) == PolicyVerdict::kStop;
      if (id != kTestEos) ids.push_back(id);
      if (id == kTestEos || stop) {
        ended = true;
        return ids;
      }
    }
    return ids;
  }

  std::string text(const std::vector<int32_t>& ids) const {
    std::string result;
    for (const int32_t id : ids) result += tokenizer_->bytes(id);
    return result;
  }

  bool ended = false;

 private:
  int32_t pick(const std::vector<int32_t>& choices, double pull) {
    if (uniform() < pull) {
      std::vector<int32_t> ends;
      for (const int32_t id : choices) {
        if (id == kTestEos) return id;
        constexpr std::array<std::string_view, 7> kEnds = {"}", "]", "\"", "null", "n", "</", "\uFF5CDSML\uFF5C"};
        if (std::ranges::find(kEnds, tokenizer_->bytes(id)) != kEnds.end()) ends.push_back(id);
      }
      if (!ends.empty()) return any_of(ends);
    }
    return any_of(choices);
  }
  int32_t any_of(const std::vector<int32_t>& ids) {
    return ids[static_cast<size_t>(uniform() * static_cast<double>(ids.size()))];
  }
  double uniform() { return random_uniform(seed_, 0, counter_++); }

  const Tokenizer* tokenizer_;
  uint64_t seed_;
  uint64_t counter_ = 0;
};

// JSON against a schema, by the words of the standard, for the keywords that the tests use.
class SchemaCheck {
 public:
  explicit SchemaCheck(nlohmann::json root) : root_(std::move(root)) {}

  bool valid(const nlohmann::json& value) const { return valid(root_, value); }

 private:
  using json = nlohmann::json;

  bool valid(const json& schema, const json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [key, rule] : schema.items()) {
      if (!keyword(schema, key, rule, value)) return false;
    }
    return true;
  }

  bool keyword(const json& schema, const std::string& key, const json& rule, const json& value) const {
    if (key == "$ref") return valid(resolve(rule.get<std::string>()), value);
    if (key == "type") {
      if (!rule.is_array()) return has_type(rule.get<std::string>(), value);
      return std::ranges::any_of(rule, [&](const json& type) { return has_type(type.get<std::string>(), value); });
    }
    if (key == "enum") return std::ranges::find(rule, value) != rule.end();
    if (key == "const") return rule == value;
    if (key == "allOf") return matching(rule, value) == rule.size();
    if (key == "anyOf") return matching(rule, value) >= 1;
    if (key == "oneOf") return matching(rule, value) == 1;
    if (value.is_string()) return string_keyword(key, rule, value.get<std::string>());
    if (value.is_number()) return number_keyword(key, rule, value);
    if (value.is_array()) return array_keyword(schema, key, rule, value);
    if (value.is_object()) return object_keyword(schema, key, rule, value);
    return true;
  }

  const json& resolve(const std::string& reference) const { return root_.at(json::json_pointer(reference.substr(1))); }

  size_t matching(const json& schemas, const json& value) const {
    return static_cast<size_t>(std::ranges::count_if(schemas, [&](const json& s) { return valid(s, value); }));
  }

  static bool has_type(const std::string& type, const json& value) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    if (type == "number") return value.is_number();
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  }

  static bool string_keyword(const std::string& key, const json& rule, const std::string& text) {
    int64_t length = 0;
    for (size_t at = 0; at < text.size(); at += utf8_sequence(text, at).length) ++length;
    if (key == "minLength") return length >= rule.get<int64_t>();
    if (key == "maxLength") return length <= rule.get<int64_t>();
    // std::regex reads bytes.
    if (key == "pattern" && !std::ranges::all_of(rule.get<std::string>(), ::isprint)) return true;
    if (key == "pattern") return std::regex_search(text, std::regex(rule.get<std::string>()));
    return true;
  }

  static bool number_keyword(const std::string& key, const json& rule, const json& value) {
    if (!rule.is_number()) return true;
    const double bound = rule.get<double>(), number = value.get<double>();
    if (key == "minimum") return number >= bound;
    if (key == "maximum") return number <= bound;
    if (key == "exclusiveMinimum") return number > bound;
    if (key == "exclusiveMaximum") return number < bound;
    if (key == "multipleOf")
      return std::fabs(number / bound - std::round(number / bound)) <= 1e-9 * std::fabs(number / bound);
    return true;
  }

  bool array_keyword(const json& schema, const std::string& key, const json& rule, const json& value) const {
    if (key == "minItems") return value.size() >= rule.get<size_t>();
    if (key == "maxItems") return value.size() <= rule.get<size_t>();
    const size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    for (size_t i = 0; i < value.size(); ++i) {
      if (key == "prefixItems" && i < first && !valid(rule[i], value[i])) return false;
      if (key == "items" && i >= first && !valid(rule, value[i])) return false;
    }
    return true;
  }

  bool object_keyword(const json& schema, const std::string& key, const json& rule, const json& value) const {
    if (key == "required")
      return std::ranges::all_of(rule, [&](const json& name) { return value.contains(name.get<std::string>()); });
    if (key == "minProperties") return value.size() >= rule.get<size_t>();
    if (key == "maxProperties") return value.size() <= rule.get<size_t>();
    for (const auto& [name, member] : value.items()) {
      const bool declared = schema.contains("properties") && schema["properties"].contains(name);
      bool matched = false;
      const json& patterns = schema.value("patternProperties", json::object());
      for (const auto& [pattern, below] : patterns.items()) {
        if (!std::regex_search(name, std::regex(pattern))) continue;
        matched = true;
        if (key == "patternProperties" && !valid(below, member)) return false;
      }
      if (key == "properties" && declared && !valid(rule[name], member)) return false;
      if (key == "additionalProperties" && !declared && !matched && !valid(rule, member)) return false;
      if (key == "propertyNames" && !valid(rule, json(name))) return false;
    }
    return true;
  }

  json root_;
};

}  // namespace folio
