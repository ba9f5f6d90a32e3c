#include "protocol/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "protocol/grammar_cases_test.h"
#include "protocol/grammar_test_util.h"

namespace folio {
namespace {

using testing::HasSubstr;

class GrammarTest : public testing::Test {
 protected:
  static const Tokenizer& tokenizer() {
    static const Tokenizer kTokenizer = grammar_tokenizer();
    return kTokenizer;
  }
  static GrammarCompiler& compiler() {
    static GrammarCompiler kCompiler(tokenizer(), kTestEos);
    return kCompiler;
  }
  static std::shared_ptr<const Grammar> schema(const std::string& text) {
    return compiler().compile({.content = GrammarSpec::Content::kJsonSchema, .text = text});
  }
  static std::shared_ptr<const Grammar> regex(const std::string& pattern) {
    return compiler().compile({.content = GrammarSpec::Content::kRegex, .text = pattern});
  }
  static std::string schema_error(const std::string& text) {
    return error_message(ErrorCode::kInvalidArgument, [&] { schema(text); });
  }
};

TEST_F(GrammarTest, TakesWhatIsValidAndNothingElse) {
  ASSERT_GE(grammar_cases().size(), 60u);
  for (const GrammarCase& c : grammar_cases()) {
    const auto grammar = schema(c.schema);
    for (const std::string& text : c.accepted) EXPECT_TRUE(grammar->accepts(text)) << c.name << ": " << text;
    for (const std::string& text : c.rejected) EXPECT_FALSE(grammar->accepts(text)) << c.name << ": " << text;
  }
}

// The table itself is right: what it accepts is valid by the words of the standard.
TEST_F(GrammarTest, TheCasesAreValid) {
  for (const GrammarCase& c : grammar_cases()) {
    const SchemaCheck check(nlohmann::json::parse(c.schema));
    for (const std::string& text : c.accepted)
      EXPECT_TRUE(check.valid(nlohmann::json::parse(text))) << c.name << ": " << text;
  }
}

TEST_F(GrammarTest, WhatIsDrawnUnderTheMasksIsValid) {
  for (const GrammarCase& c : grammar_cases()) {
    const auto grammar = schema(c.schema);
    const SchemaCheck check(nlohmann::json::parse(c.schema));
    for (uint64_t seed = 0; seed < 12; ++seed) {
      AnswerSampler sampler(tokenizer(), seed);
      const auto policy = grammar->make_policy();
      const std::string text = sampler.text(sampler.draw(*policy));
      ASSERT_TRUE(sampler.ended) << c.name << ": " << text;
      const auto value = nlohmann::json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << c.name << ": " << text;
      EXPECT_TRUE(check.valid(value)) << c.name << ": " << text;
      EXPECT_TRUE(grammar->accepts(text)) << c.name << ": " << text;
      EXPECT_EQ(find_invalid_utf8(text), text.size()) << c.name;
    }
  }
}

TEST_F(GrammarTest, AnyObjectIsAnObject) {
  const auto grammar = compiler().compile({.content = GrammarSpec::Content::kJsonObject});
  EXPECT_TRUE(grammar->accepts(R"({"a":[1,{"b":"\u00e9"}],"c":{}})"));
  EXPECT_FALSE(grammar->accepts("[1]"));
  for (uint64_t seed = 0; seed < 50; ++seed) {
    AnswerSampler sampler(tokenizer(), seed);
    const std::string text = sampler.text(sampler.draw(*grammar->make_policy()));
    ASSERT_TRUE(sampler.ended);
    EXPECT_TRUE(nlohmann::json::parse(text, nullptr, false).is_object()) << text;
  }
}

TEST_F(GrammarTest, RegexesAndChoices) {
  const auto pattern = regex("(yes|no)( \u4e16)?[.]*");
  for (const char* text : {"yes", "no \u4e16", "no...", "yes \u4e16."}) EXPECT_TRUE(pattern->accepts(text)) << text;
  for (const char* text : {"", "yesno", "maybe", "no\n"}) EXPECT_FALSE(pattern->accepts(text)) << text;
  const auto choice =
      compiler().compile({.content = GrammarSpec::Content::kChoice, .choices = {"a", "ab", "\u4e16", "x\"y"}});
  for (const char* text : {"a", "ab", "\u4e16", "x\"y"}) EXPECT_TRUE(choice->accepts(text)) << text;
  for (const char* text : {"", "b", "abc", "x\\\"y"}) EXPECT_FALSE(choice->accepts(text)) << text;
  EXPECT_TRUE(regex("a*")->accepts(""));
}

TEST_F(GrammarTest, NestsDeepButNotWithoutEnd) {
  const auto grammar = schema(R"({"type":"array","items":{"$ref":"#"}})");
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(grammar->accepts(nested(200)));
  EXPECT_FALSE(grammar->accepts(nested(300)));
  // At the deepest place all still ends well: no mask is empty.
  const auto policy = grammar->make_policy();
  const int32_t open = 3 + '[';
  int depth = 0;
  while (allows(mask_of(*policy, tokenizer().vocab_size()), open)) {
    ASSERT_EQ(policy->accept(open), PolicyVerdict::kContinue);
    ASSERT_LT(++depth, 300);
  }
  EXPECT_GT(depth, 200);
  AnswerSampler sampler(tokenizer(), 1);
  sampler.draw(*policy);
  EXPECT_TRUE(sampler.ended);
}

TEST_F(GrammarTest, RefusesByNameAndPlace) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {R"({"not":{"type":"null"}})", {"#", "\"not\""}},
      {R"({"type":"object","properties":{"a":{"if":{}}}})", {"#/properties/a", "\"if\""}},
      {R"({"type":"array","items":{"contains":{}}})", {"#/items", "\"contains\""}},
      {R"({"type":"array","uniqueItems":true})", {"#/uniqueItems", "uniqueItems"}},
      {R"({"dependentRequired":{}})", {"dependentRequired"}},
      {R"({"type":"object","properties":{"a":{}},"minProperties":1})", {"minProperties"}},
      {R"({"type":"object","properties":{"a":{}},"propertyNames":{"pattern":"a"},"additionalProperties":true})",
       {"propertyNames"}},
      {R"({"type":"object","patternProperties":{"a":{},"b":{}}})", {"#/patternProperties/b", "common name"}},
      {R"({"type":"object","properties":{"ab":{}},"patternProperties":{"^a":{}}})",
       {"#/patternProperties/^a", "stands under"}},
      {R"({"type":"strin"})", {"#/type", "strin"}},
      {R"({"type":5})", {"#/type", "string"}},
      {R"({"type":[]})", {"#/type"}},
      {R"({"type":"string","format":"iri"})", {"#/format", "iri", "date-time"}},
      {R"x({"type":"string","pattern":"(?=a)"})x", {"#/pattern", "lookaround"}},
      {R"({"type":"string","pattern":7})", {"#/pattern", "string"}},
      {R"({"type":"string","minLength":-1})", {"#/minLength", "whole number"}},
      {R"({"type":"string","minLength":3,"maxLength":2})", {"no string"}},
      {R"({"type":"string","maxLength":100000000})", {"#/maxLength", "too large"}},
      {R"({"type":"array","items":{"type":"null"},"maxItems":100000000})", {"too large"}},
      {R"({"type":"array","minItems":3,"maxItems":2})", {"no array"}},
      {R"({"type":"integer","minimum":5,"maximum":4})", {"no number"}},
      {R"({"type":"integer","minimum":"5"})", {"#/minimum", "number"}},
      {R"({"type":"integer","minimum":1e100})", {"#/minimum", "40 digits"}},
      {R"({"type":"number","multipleOf":0})", {"#/multipleOf", "above 0"}},
      {R"({"type":"number","multipleOf":0.000000123457})", {"multipleOf"}},
      {R"({"$ref":"#"})", {"refers to itself"}},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", {"refers to itself"}},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})", {"refers to itself"}},
      {R"({"$ref":"#/$defs/a"})", {"#/$ref", "nothing at"}},
      {R"({"$ref":"https://example.com/x"})", {"only references of the form"}},
      {R"({"$ref":"#name"})", {"only references of the form"}},
      {R"({"$ref":3})", {"#/$ref", "string"}},
      {R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}}})",
       {"nothing can satisfy"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"#/oneOf", "anyOf"}},
      {R"({"oneOf":[{"type":"object","properties":{"a":{}}},{"type":"object","properties":{"b":{}}}]})", {"#/oneOf"}},
      {R"({"anyOf":[]})", {"#/anyOf", "no alternatives"}},
      {R"({"anyOf":{}})", {"#/anyOf", "array"}},
      {R"({"allOf":[{"minimum":1},{"minimum":2}]})", {"minimum", "both at once"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
       {"additionalProperties"}},
      {R"({"enum":["a"],"minLength":1})", {"\"minLength\" beside \"enum\""}},
      {R"({"enum":{}})", {"#/enum", "array"}},
      {R"({"enum":["a"],"const":"b"})", {"not in \"enum\""}},
      {R"({"type":"integer","enum":["a"]})", {"nothing can satisfy"}},
      {"false", {"nothing can satisfy"}},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", {"nothing can satisfy"}},
      {R"({"type":"object","properties":{"a":{}},"required":["b"],"additionalProperties":false})",
       {"\"b\" is required"}},
      {R"({"type":"object","properties":[]})", {"#/properties", "object"}},
      {R"({"type":"object","required":"a"})", {"#/required", "array"}},
      {R"({"type":"object","properties":{"a":7}})", {"#/properties/a", "object"}},
      {"[1]", {"#", "object"}},
      {"{", {"1"}},
      {"", {""}},
  };
  for (const auto& [text, parts] : cases) {
    const std::string message = schema_error(text);
    EXPECT_FALSE(message.empty()) << text;
    for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part)) << text;
  }
}

// What only costs time or memory is refused or bounded, fast.
TEST_F(GrammarTest, HostileSchemasAreBounded) {
  std::string deep, unions = R"({"$ref":"#/$defs/a0","$defs":{)", products = unions, chain = unions;
  for (int i = 0; i < 100; ++i) deep += R"({"items":)";
  EXPECT_FALSE(schema_error(deep + "{}" + std::string(100, '}')).empty());
  for (int i = 0; i < 60; ++i) {
    const auto next = concat(R"({"$ref":"#/$defs/a)", i + 1, "\"}");
    unions += concat("\"a", i, R"(":{"anyOf":[)", next, ",", next, "]},");
    products += concat("\"a", i, R"(":{"allOf":[)", next, ",", next, "]},");
  }
  EXPECT_FALSE(schema_error(unions + R"("a60":{"type":"null"}}})").empty());
  EXPECT_FALSE(schema_error(unions + R"("a60":false}})").empty());
  EXPECT_FALSE(schema_error(products + R"("a60":{"type":"null"}}})").empty());
  for (int i = 0; i < 3000; ++i) {
    chain += concat("\"a", i, R"(":{"type":"array","items":{"$ref":"#/$defs/a)", i + 1, "\"}},");
  }
  EXPECT_TRUE(schema(chain + R"("a3000":{"type":"null"}}})")->accepts("[]"));
  std::string choices = R"({"enum":[0)";
  for (int i = 1; i < 5000; ++i) choices += concat(",", i);
  EXPECT_THAT(schema_error(choices + "]}"), HasSubstr("kinds of value"));
  std::string members = R"({"type":"object","properties":{"p":{})";
  for (int i = 0; i < 5000; ++i) members += concat(",\"p", i, "\":{}");
  EXPECT_TRUE(schema(members + "}}")->accepts(R"({"p17":1,"p4999":[]})"));
  EXPECT_FALSE(schema_error(R"({"type":"string","pattern":"^(((a{99}){99}){99})*$"})").empty());
  EXPECT_FALSE(schema_error(R"({"type":"string","pattern":"^(a?){90000}$","maxLength":90000})").empty());
  EXPECT_FALSE(schema_error(std::string(2 << 20, ' ') + "{}").empty());
}

// Nothing costs more than the size of the schema allows, however its parts are multiplied.
TEST_F(GrammarTest, LargeSchemasTakeTimeByTheirSize) {
  const auto object = [](int size, const std::function<std::string(int)>& member) {
    std::string text = R"({"type":"object","properties":{"first":{})";
    for (int i = 0; i < size; ++i) text += concat(",\"p", i, "\":", member(i));
    return text + "}";
  };
  [[maybe_unused]] const auto start = std::chrono::steady_clock::now();
  const auto compiles = [](const std::string& text) { return schema_error(text).empty(); };
  // Products of patterns and lengths, each small in the end.
  EXPECT_FALSE(compiles(object(2000,
                               [](int i) {
                                 return concat(R"({"type":"string","pattern":"^(a|ab|b){0,90}c)", i,
                                               R"($","maxLength":400})");
                               }) +
                        "}"));
  // References through chains of references.
  std::string defs = R"(,"$defs":{"d0":{"type":"null"})";
  for (int i = 1; i < 10'000; ++i) defs += concat(",\"d", i, R"(":{"$ref":"#/$defs/d)", i % 60 == 0 ? 0 : i - 1, "\"}");
  EXPECT_TRUE(compiles(object(10'000, [](int i) { return concat(R"({"$ref":"#/$defs/d)", i, "\"}"); }) + defs + "}}"));
  // Keywords that every alternative takes over.
  std::string alternatives = R"(,"anyOf":[{})";
  for (int i = 0; i < 1000; ++i) alternatives += concat(R"(,{"required":["p)", i, "\"]}");
  EXPECT_FALSE(compiles(object(10'000, [](int) { return "{}"; }) + alternatives + "]}"));
  // Alternatives that are compared with each other.
  std::string one_of = R"({"oneOf":[{"type":"null"})";
  for (int i = 0; i < 1000; ++i) one_of += concat(R"(,{"type":"object","properties":{"k":{"const":")", i, "\"}}}");
  EXPECT_FALSE(compiles(one_of + "]}"));
  std::string required = R"({"type":"object","required":["r")";
  for (int i = 0; i < 20'000; ++i) required += concat(",\"r", i, "\"");
  EXPECT_TRUE(compiles(required + "]}"));
  std::string letters = R"({"type":"object","additionalProperties":true,"properties":{"a":{})";
  for (char32_t c = 0x4e00; c < 0x4e00 + 20'000; c += 2) {
    letters += ",\"";
    append_code_point(c, letters);
    letters += "\":{}";
  }
  EXPECT_TRUE(compiles(letters + "}}"));
#ifdef NDEBUG
  // About 2 s on an idle machine.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(90));
#endif
}

TEST_F(GrammarTest, GrammarsAreKeptByTheirText) {
  GrammarCompiler small(tokenizer(), kTestEos, 2);
  const auto spec = [](const char* pattern) {
    return GrammarSpec{.content = GrammarSpec::Content::kRegex, .text = pattern};
  };
  const auto a = small.compile(spec("a"));
  EXPECT_EQ(small.compile(spec("a")), a);
  small.compile(spec("b"));
  EXPECT_EQ(small.compile(spec("a")), a);  // and so is used later than b
  small.compile(spec("c"));
  EXPECT_EQ(small.compile(spec("a")), a);
  small.compile(spec("b"));
  small.compile(spec("c"));
  EXPECT_NE(small.compile(spec("a")), a);
  EXPECT_NE(small.compile({.content = GrammarSpec::Content::kChoice, .choices = {"a"}}), small.compile(spec("a")));
  const size_t before = a->size_bytes();
  EXPECT_GT(before, 0u);
  mask_of(*a->make_policy(), tokenizer().vocab_size());
  EXPECT_GT(a->size_bytes(), before);
}

TEST_F(GrammarTest, SpecsThatMakeNoSense) {
  const auto message = [](const GrammarSpec& spec) {
    return error_message(ErrorCode::kInvalidArgument, [&] { compiler().compile(spec); });
  };
  EXPECT_THAT(message({}), HasSubstr("content or tools"));
  EXPECT_THAT(message({.content = GrammarSpec::Content::kChoice}), HasSubstr("nothing to choose"));
  EXPECT_THAT(message({.content = GrammarSpec::Content::kChoice, .choices = {"\xff"}}), HasSubstr("UTF-8"));
  EXPECT_THAT(message({.content = GrammarSpec::Content::kRegex, .text = "[b-a]"}), HasSubstr("no order"));
  EXPECT_THAT(message({.content = GrammarSpec::Content::kRegex, .text = "a[^\\s\\S]"}),
              HasSubstr("nothing can satisfy"));
}

}  // namespace
}  // namespace folio
