#include "protocol/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "protocol/test_util.h"

namespace folio {
namespace {

using testing::HasSubstr;

std::string python(const std::string& text) { return python_json(Json::parse(text)); }

TEST(Json, NumbersAsPythonPrintsThem) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0", "0"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"1.50", "1.5"},
      {"1e5", "100000.0"},
      {"1E+5", "100000.0"},
      {"1e15", "1000000000000000.0"},
      {"123456789012345678.0", "1.2345678901234568e+17"},
      {"1e16", "1e+16"},
      {"1e22", "1e+22"},
      {"1e100", "1e+100"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"0.00012345", "0.00012345"},
      {"1.5e-7", "1.5e-07"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"1E400", "Infinity"},
      {"-1E400", "-Infinity"},
      {"0.1", "0.1"},
      {"3.0", "3.0"},
      {"100.25", "100.25"},
      {"2.718281828459045235", "2.718281828459045"},
      {"12345678901234567890123456789012345678901234567890", "12345678901234567890123456789012345678901234567890"},
  };
  for (const auto& [in, out] : cases) {
    EXPECT_EQ(python(in), out);
    EXPECT_EQ(json_text(Json::parse(in)), in);
  }
}

TEST(Json, TextAsPythonPrintsIt) {
  EXPECT_EQ(python(R"( {"b":1,"a":[1,"x",{"k":null}],"t":true,"f":false,"e":{},"l":[]} )"),
            R"({"b": 1, "a": [1, "x", {"k": null}], "t": true, "f": false, "e": {}, "l": []})");
  EXPECT_EQ(python(R"("\u00e9\/\u0000\u001F\u007f\b\f\n\r\t\"\\ü")"),
            "\"é/\\u0000\\u001f\x7f\\b\\f\\n\\r\\t\\\"\\\\ü\"");
}

TEST(Json, LastOfRepeatedKeysInTheFirstPlace) {
  EXPECT_EQ(python(R"({"a":1,"b":2,"a":{"x":3}})"), R"({"a": {"x": 3}, "b": 2})");
}

TEST(Json, LoneSurrogatesAreReplaced) {
  EXPECT_EQ(*Json::parse(R"("\ud83d\ude00")").string(), "😀");
  EXPECT_EQ(*Json::parse(R"("\ud83d")").string(), "\uFFFD");
  EXPECT_EQ(*Json::parse(R"("a\ude00b")").string(), "a\uFFFDb");
  EXPECT_EQ(*Json::parse(R"("\ud83d\u0041")").string(), "\uFFFDA");
  EXPECT_EQ(*Json::parse(R"("\ud83d\ud83d\ude00")").string(), "\uFFFD😀");
  EXPECT_EQ(*Json::parse(R"("\ud83d\n")").string(), "\uFFFD\n");
}

TEST(Json, AccessByType) {
  const Json json = Json::parse(R"({"i":-5,"big":9223372036854775808,"f":1.0,"s":"x","b":true,"n":null,"a":[1]})");
  EXPECT_EQ(json.find("i")->integer(), -5);
  EXPECT_EQ(json.find("i")->number(), -5.0);
  EXPECT_FALSE(json.find("big")->integer());
  EXPECT_EQ(json.find("big")->number(), 9223372036854775808.0);
  EXPECT_FALSE(json.find("f")->integer());
  EXPECT_FALSE(json.find("b")->integer());
  EXPECT_EQ(*json.find("s")->string(), "x");
  EXPECT_EQ(json.find("b")->boolean(), true);
  EXPECT_TRUE(json.find("n")->is_null());
  EXPECT_EQ(json.find("a")->array()->size(), 1u);
  EXPECT_EQ(json.find("missing"), nullptr);
  EXPECT_EQ(json.find("a")->find("x"), nullptr);
  EXPECT_EQ(json.find("a")->type_name(), "an array");
}

TEST(Json, SetKeepsThePlace) {
  Json json = Json::parse(R"({"a":1,"b":2})");
  json.set("a", Json("x"));
  json.set("c", Json(int64_t{3}));
  EXPECT_EQ(python_json(json), R"({"a": "x", "b": 2, "c": 3})");
}

TEST(Json, RefusesWhatIsNotJson) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "byte 0: the text ends"},
      {"{", "byte 1: expected a key"},
      {"{\"a\" 1}", "byte 5: expected ':'"},
      {"{\"a\":1,}", "byte 7: expected a key"},
      {"[1,]", "byte 3: expected a value"},
      {"[1 2]", "byte 3: expected ',' or ']'"},
      {"nul", "byte 0: expected a value"},
      {"01", "byte 1: text behind"},
      {"1.", "byte 2: expected a digit"},
      {"-", "byte 0: expected a value"},
      {"1e", "byte 2: expected a digit"},
      {".5", "byte 0: expected a value"},
      {"+1", "byte 0: expected a value"},
      {"NaN", "byte 0: expected a value"},
      {"-Infinity", "byte 0: expected a value"},
      {"'a'", "byte 0: expected a value"},
      {"\"a", "byte 2: a string without its end"},
      {"\"\n\"", "byte 1: a control character"},
      {"\"\\x\"", "byte 2: an unknown escape"},
      {"\"\\u12g4\"", "four hexadecimal digits"},
      {"\"\\u12", "four hexadecimal digits"},
      {"\"\xff\"", "byte 1: not UTF-8"},
      {"\"\xed\xa0\x80\"", "byte 1: not UTF-8"},
      {"1 2", "byte 2: text behind"},
      {std::string("1\0", 2), "byte 1: text behind"},
      {"\xEF\xBB\xBF{}", "byte 0: expected a value"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    try {
      Json::parse(text);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }
}

TEST(Json, Limits) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_NO_THROW(Json::parse(nested(128)));
  EXPECT_THROW(Json::parse(nested(129)), Error);
  EXPECT_THROW(Json::parse(std::string(1000000, '[')), Error);
  EXPECT_NO_THROW(Json::parse("[1,2]", {.values = 3}));
  EXPECT_THROW(Json::parse("[1,2]", {.values = 2}), Error);
}

TEST(Json, NonFiniteWhereAllowed) {
  const JsonLimits limits{.non_finite = true};
  EXPECT_EQ(python_json(Json::parse("[NaN,Infinity,-Infinity]", limits)), "[NaN, Infinity, -Infinity]");
  EXPECT_TRUE(std::isnan(*Json::parse("NaN", limits).number()));
  EXPECT_THROW(Json::parse("nan", limits), Error);
}

TEST(Json, ManyKeysInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += concat(i > 0 ? "," : "", "\"", i % 100000, "\":", i);
  const Json json = Json::parse(text + "}");
  ASSERT_EQ(json.object()->size(), 100000u);
  EXPECT_EQ(json.object()->at(7).key, "7");
  EXPECT_EQ(json.object()->at(7).value.integer(), 100007);
}

// A random document as text.
std::string random_json(Draws& draws, int depth) {
  switch (draws.below(depth > 3 ? 5 : 7)) {
    case 0:
      return "null";
    case 1:
      return draws.below(2) == 0 ? "true" : "false";
    case 2:
      return std::to_string(static_cast<int64_t>(draws.below(2000000)) - 1000000);
    case 3:
      return concat(draws.below(1000), ".", draws.below(1000), "e-", draws.below(20));
    case 4:
      return draws.one_of<std::string>({R"("")", R"("a\"b")", R"("\u00e9")", R"("\ud83d\ude00 x")", R"("\n/\/")"});
    case 5: {
      std::string text = "[";
      for (size_t i = draws.below(4); i > 0; --i) text += random_json(draws, depth + 1) + (i > 1 ? " ," : "");
      return text + "]";
    }
    default: {
      std::string text = "{";
      for (size_t i = draws.below(4); i > 0; --i) {
        text += concat("\"k", i, "\" : ", random_json(draws, depth + 1), i > 1 ? "," : "");
      }
      return text + "}";
    }
  }
}

TEST(Json, AgreesWithAnotherReader) {
  Draws draws(3);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_json(draws, 0);
    const auto expected = nlohmann::ordered_json::parse(text);
    EXPECT_EQ(nlohmann::ordered_json::parse(json_text(Json::parse(text))), expected) << text;
    EXPECT_EQ(nlohmann::ordered_json::parse(python(text)), expected) << text;
  }
}

}  // namespace
}  // namespace folio
