#include "protocol/stream_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/test_util.h"

namespace folio {
namespace {

constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";

struct Vector {
  ParserOptions options;
  std::string text;
  AnswerEnd end = AnswerEnd::kLength;
};

Vector read_vector(const Json& json) {
  Vector vector;
  vector.options.start = text_of(json, "starts_in") == "reasoning" ? AnswerStart::kReasoning : AnswerStart::kContent;
  vector.options.calls = true;
  vector.options.tools = std::make_shared<const std::vector<Tool>>(parse_tools(*json.find("tools")));
  vector.text = text_of(json, "text");
  if (vector.text.ends_with(kEndOfSentence)) {
    vector.text.resize(vector.text.size() - kEndOfSentence.size());
    vector.end = AnswerEnd::kStop;
  }
  return vector;
}

// The answer in the form of a vector's "serving".
void expect_serving(const ParsedAnswer& answer, const std::string& reason, const Json& serving) {
  EXPECT_EQ(answer.reasoning, text_of(serving, "reasoning"));
  EXPECT_EQ(answer.content, text_of(serving, "content"));
  EXPECT_EQ(reason, text_of(serving, "finish_reason"));
  const Json::Array& calls = *serving.find("tool_calls")->array();
  ASSERT_EQ(answer.calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(answer.calls[i].name, text_of(calls[i], "name"));
    if (const Json* text = calls[i].find("arguments_text")) {
      EXPECT_EQ(answer.calls[i].arguments, *text->string());
    } else {
      EXPECT_TRUE(answer.calls[i].complete);
      EXPECT_EQ(Json::parse(answer.calls[i].arguments), *calls[i].find("arguments"));
    }
  }
}

class ParseVectors : public testing::Test {
 protected:
  // Calls `check` with each vector, its text and what it should give.
  template <typename Check>
  void for_each(const Check& check) {
    const auto text = read_text(kVectors + "dsml/completion_parse_vectors.json");
    ASSERT_TRUE(text);
    const Json vectors = Json::parse(*text);
    ASSERT_EQ(vectors.array()->size(), 42u);
    for (const Json& json : *vectors.array()) {
      SCOPED_TRACE(text_of(json, "name"));
      check(read_vector(json), *json.find("serving"));
      if (HasFailure()) return;
    }
  }

  static void expect(const Vector& vector, const std::vector<size_t>& cuts, const Json& serving) {
    std::string reason;
    const ParsedAnswer answer = parse_answer(vector.options, vector.text, cuts, vector.end, &reason);
    expect_serving(answer, reason, serving);
  }
};

TEST_F(ParseVectors, Whole) {
  for_each([](const Vector& vector, const Json& serving) { expect(vector, {}, serving); });
}

TEST_F(ParseVectors, CharacterByCharacter) {
  for_each([](const Vector& v, const Json& serving) { expect(v, character_cuts(v.text), serving); });
}

TEST_F(ParseVectors, EveryTwoWaySplit) {
  for_each([](const Vector& vector, const Json& serving) {
    for (const size_t cut : character_cuts(vector.text)) expect(vector, {cut}, serving);
  });
}

TEST_F(ParseVectors, RandomPieces) {
  Draws draws(1);
  for_each([&](const Vector& vector, const Json& serving) {
    const std::vector<size_t> characters = character_cuts(vector.text);
    for (int i = 0; i < 200; ++i) {
      std::vector<size_t> cuts;
      const size_t most = 1 + draws.below(12);
      for (const size_t cut : characters) {
        if (draws.below(most) == 0) cuts.push_back(cut);
      }
      expect(vector, cuts, serving);
    }
  });
}

// A short form of an answer: {reasoning}content[name arguments]..., with "..." behind arguments that are not complete.
std::string summary(const ParsedAnswer& answer) {
  std::string text = answer.reasoning.empty() ? "" : "{" + answer.reasoning + "}";
  text += answer.content;
  for (const ParsedAnswer::Call& call : answer.calls) {
    text += concat("[", call.name, " ", call.arguments, call.complete ? "]" : "...]");
  }
  return text;
}

// What a text gives, whole and under every way to cut it in two and into characters, which must agree.
std::string parse(const ParserOptions& options, const std::string& text, AnswerEnd end, std::string* reason = nullptr) {
  const std::string whole = summary(parse_answer(options, text, {}, end, reason));
  const std::vector<size_t> characters = character_cuts(text);
  EXPECT_EQ(summary(parse_answer(options, text, characters, end)), whole) << text;
  for (const size_t cut : characters) EXPECT_EQ(summary(parse_answer(options, text, {cut}, end)), whole) << text;
  return whole;
}

// Writes the short tags of the tests out: [C] and [/C] are the block, [I f] and [/I] a call, [P k] a string and [J k] a
// JSON parameter, [/P] its end.
std::string spelled(std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  };
  const auto replace_named = [&](const std::string& from, const std::string& before, const std::string& after) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1)) {
      const size_t end = text.find(']', at);
      text.replace(at, end + 1 - at, before + text.substr(at + from.size(), end - at - from.size()) + after);
    }
  };
  replace("[C]", "<｜DSML｜ calls>");
  replace("[/C]", "</｜DSML｜ calls>");
  replace("[/I]", "</｜DSML｜ invoke>");
  replace("[/P]", "</｜DSML｜ parameter>");
  replace_named("[I ", "<｜DSML｜ invoke name=\"", "\">");
  replace_named("[P ", "<｜DSML｜ parameter name=\"", "\" string=\"true\">");
  replace_named("[J ", "<｜DSML｜ parameter name=\"", "\" string=\"false\">");
  return text;
}

struct Rule {
  std::string text, stopped;
  std::string cut = {};  // "": as stopped
};

void expect_rules(const std::vector<Rule>& rules, ParserOptions options) {
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.text);
    EXPECT_EQ(parse(options, spelled(rule.text), AnswerEnd::kStop), spelled(rule.stopped));
    EXPECT_EQ(parse(options, spelled(rule.text), AnswerEnd::kLength),
              spelled(rule.cut.empty() ? rule.stopped : rule.cut));
  }
}

const ParserOptions kContent{.calls = true};
const ParserOptions kReasoning{.start = AnswerStart::kReasoning, .calls = true};

TEST(StreamParser, Thinking) {
  expect_rules({{"r</think>c", "{r}c"},
                {"r", "{r}"},
                {"r</think>", "{r}"},
                {"r</thin", "{r</thin}"},
                {"r</think></think>c", "{r}c"},
                {"r</think>a</think>b<think>c", "{r}abc"},
                {"<think>r</think>c", "{r}c"},
                {"a</think> \n<think>b</think>c", "{ab} \nc"},
                {"a</think>x<think>b</think>c", "{a}xbc"},
                {"r\n\n</think>\n\nc\n", "{r\n\n}\n\nc\n"}},
               kReasoning);
  expect_rules({{"<think>r</think>c", "{r}c"},
                {" <think>r", "{r} "},
                {"c<think>d", "cd"},
                {"</think>c", "c"},
                {"a<b</c", "a<b</c"}},
               kContent);
}

TEST(StreamParser, Blocks) {
  const std::string call = "[I f]\n[P a]x[/P]\n[/I]\n[/C]";
  const std::string parsed = R"([f {"a": "x"}])";
  expect_rules({{"\n\n[C]\n" + call, parsed},
                {"t\n\n\n\n[C]" + call, "t\n\n" + parsed},
                {"t\n[C]" + call, "t" + parsed},
                {"t [C] \n\n " + call, "t " + parsed},
                {"t\n\n" + call, "t" + parsed},
                {"t\n\n<｜DSML｜invoke name=\"f\">" + call.substr(5), "t" + parsed},
                {"t[C]<invoke name=\"f\">" + call.substr(5), "t" + parsed},
                {"[C] and [C] again", "[C] and [C] again"},
                {"\n\n[C] x\n\n[C]" + call, "\n\n[C] x" + parsed},
                {"[C]\n<think>x", "[C]\nx"},
                {"t\n\n[C][/C]", "t"},
                {"t\n\n[C]\n\n", "t"},
                {"t\n\n[C]\n<", "t"},
                {"t\n\n<｜DSML｜", "t"},
                {"t\n\n<｜DSML｜ inv", "t"},
                {"t\n\n<｜DS", "t\n\n<｜DS"},
                {"t <｜DSML｜ other>", "t <｜DSML｜ other>"},
                {"t\n\n", "t\n\n"}},
               kContent);
  expect_rules({{"r\n\n[C]\n" + call, "{r}" + parsed},
                {"r[C] is quoted</think>c", "{r[C] is quoted}c"},
                {"r\n\n</think>\n\n[C]\n" + call, "{r\n\n}" + parsed},
                {"r\n\n</think>[C]\n" + call + "</think>more", "{r\n\n}" + parsed}},
               kReasoning);
  for (const std::string word : {"tool_calls", "toolcalls", "function_calls", "calls"}) {
    for (const std::string space : {"", " "}) {
      expect_rules({{concat("<｜DSML｜", space, word, ">\n[I f]\n\n[/I]</｜DSML｜", space, word, ">x"), "[f {}]"}},
                   kContent);
    }
  }
}

TEST(StreamParser, WithoutToolsMarkupIsText) {
  const std::string text = spelled("t\n\n[C]\n[I f]\n[P a]x[/P]\n[/I]\n[/C]\n\n");
  EXPECT_EQ(parse({.start = AnswerStart::kReasoning}, "r</think>" + text, AnswerEnd::kStop), "{r}" + text);
  EXPECT_EQ(parse({}, "a <｜DSML｜", AnswerEnd::kStop), "a <｜DSML｜");
}

TEST(StreamParser, Calls) {
  expect_rules({{"[C][I f]\n\n[/I]junk[I g]\n\n[/I][/C]junk", "[f {}][g {}]"},
                {"[C]<｜DSML｜ invoke name=\"f\"/>[I g]\n[/I]", "[f {}][g {}]"},
                {"[C]<｜DSML｜ invoke name=\"f\" x=\"y\">[P a]1[/P][/I]", R"([f {"a": "1"}])"},
                {"[C]<｜DSML｜ invoke name=\"f\ng\">[I h][/I]", "[h {}]"},
                {"[C][I " + std::string(256, 'n') + "][/I]", "[" + std::string(256, 'n') + " {}]"},
                {"[C][I " + std::string(257, 'n') + "][/I][I f][/I]", "[f {}]"},
                {"[C]<｜DSML｜ invoke name=\"f", ""},
                {"[C]<｜DSML｜ invoke name=\"f\" ", ""},
                {"[C][I f]\n", "[f {}]", "[f ...]"},
                {"[C][I f]\n[/I]", "[f {}]"},
                {"[C][I f]\n[I g]\n[/C]", "[f {}][g {}]"},
                {"[C][I f]\n[P a]1[/P]\n[/C]rest", R"([f {"a": "1"}])"},
                {"[C][I f]\n[P a]1[/P]\n", R"([f {"a": "1"}])", R"([f {"a": "1"...])"},
                {"[C][I f]\n[P a]1[/P]\n[I g]\n[P b]2[/P]\n[/I]", R"([f {"a": "1"}][g {"b": "2"}])"}},
               kContent);
}

TEST(StreamParser, Parameters) {
  const auto call = [](const std::string& inside) { return "[C]\n[I f]\n" + inside + "\n[/I]\n[/C]"; };
  expect_rules({{call("[P a]1[/P][P a]2[/P][J b]3[/P]"), R"([f {"a": "1", "b": 3}])"},
                {call("junk[P a]1[/P] junk <b> [J b]2[/P]"), R"([f {"a": "1", "b": 2}])"},
                {call("<parameter name=\"a\" string=\"false\">1[/P]"), R"([f {"a": 1}])"},
                {call("<parameter name=\"a\">1[/P]<parameter name=\"b\">x y[/P]"), R"([f {"a": 1, "b": "x y"}])"},
                {call("<｜DSML｜parameter name=\"a\" string=\"true\">1</｜DSML｜parameter>"), R"([f {"a": "1"}])"},
                {call("[P a\" b]1[/P][P \"><]2[/P]"), R"([f {"a\" b": "1", "\"><": "2"}])"},
                {call("[P k\n\\]1[/P]"), R"([f {"k\n\\": "1"}])"},
                {call("<｜DSML｜ parameter name=\"a[/P][P b]2[/P]"), R"([f {"b": "2"}])"},
                {call("[J a] {\"x\": 1.50 ,\"y\":[]} [/P]"), R"([f {"a": {"x": 1.50 ,"y":[]}}])"},
                {call("[J a]tru[/P][J b]true[/P][J c][/P][J d] \"s\" [/P]"),
                 R"([f {"a": "tru", "b": true, "c": "", "d": "s"}])"},
                {call("[J a]NaN[/P]"), R"([f {"a": "NaN"}])"},
                {call("[P a]<b> </b> < </｜ </｜DSML x[/P]"), R"([f {"a": "<b> </b> < </｜ </｜DSML x"}])"},
                {call("[P a] \"q\" \\ \t\n\x01 é [/P]"), R"([f {"a": " \"q\" \\ \t\n\u0001 é "}])"},
                {call("[P a]1</｜DSML｜ invoke>[I g]"), R"([f {"a": "1"}][g {}])"},
                {call("[P a]1</｜DSML｜invoke >[I g]"), R"([f {"a": "1"}][g {}])"},
                {call("[P a]1</｜DSML｜ tool_calls>[I g]"), R"([f {"a": "1"}])"},
                {call("{\"x\": [1], \"y\": 1.50}"), R"([f {"x": [1], "y": 1.50}])"},
                {call("{\"x\": 1}[/P][P x]2[/P][P y]3[/P]"), R"([f {"x": 1, "y": "3"}])"},
                {call("{broken}"), "[f {}]"},
                {call("[1]"), "[f {}]"},
                {call("x{\"a\": 1}"), "[f {}]"}},
               kContent);
  expect_rules({{"[C][I f][P a]1", R"([f {"a": "1...])"},
                {"[C][I f][P a]1</｜DSM", R"([f {"a": "1...])"},
                {"[C][I f][P a]1</｜DSML｜ para", R"([f {"a": "1"}])", R"([f {"a": "1"...])"},
                {"[C][I f][P a]1[/P][J b]2", R"([f {"a": "1"...])"},
                {"[C][I f]<parameter name=\"b\">2", "[f ...]"},
                {"[C][I f]<parameter name=\"b", "[f {}]", "[f ...]"},
                {"[C][I f]{\"a\": 1}", R"([f {"a": 1}])", "[f ...]"},
                {"[C][I f]{\"a\": ", "[f ...]"}},
               kContent);
}

TEST(StreamParser, SchemasDecideWhatTheMarkupDoesNot) {
  ParserOptions options = kContent;
  options.tools = std::make_shared<const std::vector<Tool>>(parse_tools(Json::parse(R"([
      {"function":{"name":"f","parameters":{"properties":{"s":{"type":"string"},"n":{"type":["string","null"]},
       "i":{"type":"integer"}}}}},
      {"function":{"name":"g","parameters":{"properties":{"input":{"type":"object"}}}}},{"function":{"name":"h"}}])")));
  const auto call = [](const std::string& name, const std::string& inside) {
    return "[C]\n[I " + name + "]\n" + inside + "\n[/I]\n[/C]";
  };
  expect_rules(
      {{call("f", "[J s]5[/P][J n]null[/P][J i]5[/P]"), R"([f {"s": "5", "n": null, "i": 5}])"},
       {call("f", "[J s]\"5\"[/P][J n]7[/P]"), R"([f {"s": "5", "n": "7"}])"},
       {call("f", "[P i]5[/P]"), R"([f {"i": "5"}])"},
       {call("f", "<parameter name=\"s\">true[/P]<parameter name=\"i\">true[/P]"), R"([f {"s": "true", "i": true}])"},
       {call("f", "[J arguments]{\"s\": \"x\", \"i\": 1}[/P][P n]y[/P]"), R"([f {"s": "x", "i": 1, "n": "y"}])"},
       {call("f", "[P input]{\"s\": \"x\"}[/P][P s]y[/P]"), R"([f {"s": "x"}])"},
       {call("f", "[P input]{\"other\": 1}[/P]"), R"([f {"input": "{\"other\": 1}"}])"},
       {call("f", "[J input]{}[/P]"), "[f {}]"},
       {call("f", "[P s]x[/P][J input]{\"i\": 1}[/P]"), R"([f {"s": "x", "input": {"i": 1}}])"},
       {call("g", "[J input]{\"input\": 1}[/P]"), R"([g {"input": {"input": 1}}])"},
       {call("h", "[J input]{\"s\": 1}[/P]"), R"([h {"input": {"s": 1}}])"},
       {call("unknown", "[J input]{\"s\": 1}[/P]"), R"([unknown {"input": {"s": 1}}])"}},
      options);
}

TEST(StreamParser, StopStringsActOnContentAlone) {
  const auto stop = [](std::vector<std::string> stops, bool include = false) {
    return ParserOptions{
        .start = AnswerStart::kReasoning, .calls = true, .stops = std::move(stops), .include_stop = include};
  };
  EXPECT_EQ(parse(stop({"END"}), "a END b</think>c END d", AnswerEnd::kStop), "{a END b}c ");
  EXPECT_EQ(parse(stop({"END"}, true), "r</think>c END d", AnswerEnd::kStop), "{r}c END");
  EXPECT_EQ(parse(stop({"END"}), "r</think>c EN", AnswerEnd::kStop), "{r}c EN");
  EXPECT_EQ(parse(stop({"\n\n"}), "r</think>c\n\nd", AnswerEnd::kStop), "{r}c");
  EXPECT_EQ(parse(stop({"ab"}), "r</think>a</think>b", AnswerEnd::kStop), "{r}");
  EXPECT_EQ(parse(stop({"\n\n"}), spelled("r</think>c\n\n[C][I f]\n\n[/I][/C]"), AnswerEnd::kStop), "{r}c[f {}]");
  EXPECT_EQ(parse(stop({"xyz"}), spelled("r</think>xy\n\n[C][I f][P a]xyz[/P][/I][/C]"), AnswerEnd::kStop),
            R"({r}xy[f {"a": "xyz"}])");

  StreamParser parser(stop({"b", "bc"}));
  std::vector<Delta> deltas;
  parser.push("</think>abcd", deltas);
  EXPECT_TRUE(parser.done());
  ASSERT_NE(parser.stop(), nullptr);
  EXPECT_EQ(*parser.stop(), "b");
  EXPECT_THROW(StreamParser(stop({""})), Error);
}

TEST(StreamParser, DeltasComeEarly) {
  StreamParser parser(kReasoning);
  std::vector<Delta> out;
  const auto pushed = [&](const std::string& text) {
    out.clear();
    parser.push(spelled(text), out);
    return out;
  };
  using Kind = Delta::Kind;
  using Deltas = std::vector<Delta>;
  EXPECT_EQ(pushed("think"), (Deltas{{Kind::kReasoning, "think"}}));
  EXPECT_EQ(pushed("</think>Hi \n"), (Deltas{{Kind::kContent, "Hi "}}));
  EXPECT_EQ(pushed("\n\n"), (Deltas{{Kind::kContent, "\n"}}));
  EXPECT_EQ(pushed("[C]\n"), Deltas{});
  EXPECT_EQ(pushed("[I get]\n"), (Deltas{{Kind::kCall, "get"}}));
  EXPECT_EQ(pushed("[P city]Pa"), (Deltas{{Kind::kArguments, R"({"city": "Pa)"}}));
  EXPECT_EQ(pushed("r\nis</"), (Deltas{{Kind::kArguments, R"(r\nis)"}}));
  EXPECT_EQ(pushed("｜DSML｜ parameter>\n[J days]"), (Deltas{{Kind::kArguments, "\""}}));
  EXPECT_EQ(pushed("3"), Deltas{});
  EXPECT_EQ(pushed("[/P]\n[/I]\n[I now]"),
            (Deltas{{Kind::kArguments, R"(, "days": 3})"}, {Kind::kCallEnd, ""}, {Kind::kCall, "now", 1}}));
  EXPECT_EQ(pushed("\n\n[/I]"), (Deltas{{Kind::kArguments, "{}", 1}, {Kind::kCallEnd, "", 1}}));
  EXPECT_FALSE(parser.done());
  EXPECT_EQ(pushed("\n[/C]"), Deltas{});
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(pushed(" more text"), Deltas{});
  EXPECT_EQ(parser.calls_begun(), 2);
  EXPECT_EQ(parser.calls_completed(), 2);
  EXPECT_EQ(parser.dropped_bytes(), 8u);
}

TEST(StreamParser, FinishReasons) {
  std::string reason;
  parse(kContent, "hi", AnswerEnd::kStop, &reason);
  EXPECT_EQ(reason, "stop");
  parse(kContent, "hi", AnswerEnd::kLength, &reason);
  EXPECT_EQ(reason, "length");
  parse(kContent, spelled("[C][I f]\n\n[/I]"), AnswerEnd::kStop, &reason);
  EXPECT_EQ(reason, "tool_calls");
  parse(kContent, spelled("[C][I f]\n[P a]x"), AnswerEnd::kStop, &reason);
  EXPECT_EQ(reason, "stop");
}

// A long run of what makes a careless machine look back is read in linear time: in no time here.
TEST(StreamParser, LongTexts) {
  const std::vector<std::string> repeated = {"<", "\n", "</think>", "<｜DSML｜ calls>", "<｜DSML｜ calls> ", "a", "\""};
  const std::vector<std::string> before = {"",
                                           "<｜DSML｜ calls>",
                                           spelled("[C][I f]"),
                                           spelled("[C][I f][P a]"),
                                           spelled("[C][I f][J a]"),
                                           spelled("[C]<｜DSML｜ invoke name=\""),
                                           spelled("[C][I f]<parameter name=\""),
                                           spelled("[C][I f]{")};
  for (const std::string& begin : before) {
    for (const std::string& unit : repeated) {
      std::string text = begin;
      while (text.size() < (size_t{1} << 18)) text += unit;
      std::vector<size_t> cuts;
      for (size_t at = 4; at < text.size(); at += 4) cuts.push_back(at);
      EXPECT_EQ(summary(parse_answer(kContent, text, cuts, AnswerEnd::kStop)),
                summary(parse_answer(kContent, text, {}, AnswerEnd::kStop)));
    }
  }
}

}  // namespace
}  // namespace folio
