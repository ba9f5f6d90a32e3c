#include "protocol/grammar_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/grammar_test_util.h"
#include "protocol/stream_parser.h"

namespace folio {
namespace {

using testing::HasSubstr;

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = grammar_tokenizer();
  return kTokenizer;
}

std::shared_ptr<const Grammar> compile(const GrammarSpec& spec) {
  static GrammarCompiler kCompiler(tokenizer(), kTestEos);
  return kCompiler.compile(spec);
}

// "<D calls>" with the marker for D.
std::string markup(std::string text) {
  for (size_t at = 0; (at = text.find("D ", at)) != std::string::npos; ++at) {
    if (at > 0 && (text[at - 1] == '<' || text[at - 1] == '/')) text.replace(at, 1, "\uFF5CDSML\uFF5C");
  }
  return text;
}

std::string block(const std::string& calls) { return markup("\n\n<D calls>\n" + calls + "</D calls>"); }
std::string call(const std::string& name, const std::string& parameters) {
  return "<D invoke name=\"" + name + "\">\n" + parameters + "</D invoke>\n";
}
std::string parameter(const std::string& name, bool string, const std::string& value) {
  return concat("<D parameter name=\"", name, "\" string=\"", string ? "true" : "false", "\">", value,
                "</D parameter>\n");
}

const GrammarTool kWeather = {"get_weather",
                              R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer",
  "minimum":1,"maximum":9},"units":{"type":"string","enum":["C","F"]},"where":{"anyOf":[{"type":"null"},{"type":"object",
  "properties":{"lat":{"type":"number"},"label":{"type":"string"}},"required":["lat"]}]}},"required":["city","units"],
  "additionalProperties":false})"};
const GrammarTool kNow = {"time::now", ""};
const GrammarTool kOpen = {"open",
                           R"({"type":"object","properties":{"id":{"type":["string","integer"]}},"required":["id"],
  "additionalProperties":{"type":"array","items":{"type":"string"}}})"};

TEST(GrammarCalls, TakeTheMarkupOfTheModel) {
  const auto grammar = compile({.tools = {kWeather, kNow, kOpen}});
  const std::vector<std::string> accepted = {
      block(call("time::now", "\n")),
      block(call("get_weather", parameter("city", true, "Z\u00fcrich </b> \"x\"\n") + parameter("units", true, "C"))),
      block(call("get_weather", parameter("city", true, "") + parameter("days", false, "3") +
                                    parameter("units", true, "F") +
                                    parameter("where", false, R"({"lat": 1.5, "label": "\uff5c"})"))),
      block(call("get_weather",
                 parameter("city", true, "a") + parameter("units", true, "C") + parameter("where", false, "null"))),
      block(call("time::now", "\n") + call("open", parameter("id", true, "1"))),
      block(call("open", parameter("id", false, "1") + parameter("more", false, R"(["a"])"))),
  };
  const std::vector<std::string> rejected = {
      "",
      "text",
      block(""),
      block(call("unknown", "\n")),
      block(call("time::now", "")),
      "x" + block(call("time::now", "\n")),
      block(call("time::now", "\n")) + "\n",
      block(call("get_weather", "\n")),
      block(call("get_weather", parameter("city", true, "a"))),
      block(call("get_weather", parameter("units", true, "C") + parameter("city", true, "a"))),
      block(call("get_weather", parameter("city", false, "\"a\"") + parameter("units", true, "C"))),
      block(call("get_weather", parameter("city", true, "a") + parameter("units", true, "K"))),
      block(call("get_weather",
                 parameter("city", true, "a") + parameter("days", false, "10") + parameter("units", true, "C"))),
      block(call("get_weather",
                 parameter("city", true, "a") + parameter("units", true, "C") + parameter("x", true, "y"))),
      block(call("get_weather", parameter("city", true, "a") + parameter("units", true, "C") +
                                    parameter("where", false, "{\"lat\":1,\"label\":\"\uFF5C\"}"))),
      block(call("open", parameter("id", false, "1") + parameter("id", false, "[]"))),
      block(call("open", parameter("id", false, "1") + parameter("more", false, "[1]"))),
  };
  for (const std::string& text : accepted) EXPECT_TRUE(grammar->accepts(text)) << text;
  for (const std::string& text : rejected) EXPECT_FALSE(grammar->accepts(text)) << text;
}

TEST(GrammarCalls, OneCallWhereCallsAreNotParallel) {
  const auto grammar = compile({.tools = {kNow}, .parallel_calls = false});
  EXPECT_TRUE(grammar->accepts(block(call("time::now", "\n"))));
  EXPECT_FALSE(grammar->accepts(block(call("time::now", "\n") + call("time::now", "\n"))));
}

// What is drawn under the masks goes through the parser of the server and comes out as arguments that are valid.
TEST(GrammarCalls, AreReadBackAsValidArguments) {
  const std::vector<GrammarTool> tools = {kWeather, kOpen};
  const auto grammar = compile({.tools = tools});
  const auto declared = std::make_shared<std::vector<Tool>>();
  for (const GrammarTool& tool : tools) {
    Json function;
    function.set("name", Json(tool.name));
    function.set("parameters", Json::parse(tool.parameters));
    declared->push_back({tool.name, function});
  }
  for (uint64_t seed = 0; seed < 150; ++seed) {
    AnswerSampler sampler(tokenizer(), seed);
    const std::string text = sampler.text(sampler.draw(*grammar->make_policy(), 20'000));
    ASSERT_TRUE(sampler.ended) << text.substr(0, 500);
    StreamParser parser({.start = AnswerStart::kContent, .calls = true, .tools = declared});
    std::vector<Delta> deltas;
    parser.push(text, deltas);
    EXPECT_TRUE(parser.done()) << text;
    EXPECT_EQ(parser.dropped_bytes(), 0u) << text;
    ParsedAnswer answer;
    answer.add(deltas);
    EXPECT_EQ(answer.content, "") << text;
    ASSERT_FALSE(answer.calls.empty()) << text;
    for (const auto& one : answer.calls) {
      EXPECT_TRUE(one.complete);
      const GrammarTool& tool = one.name == kWeather.name ? kWeather : kOpen;
      const auto arguments = nlohmann::json::parse(one.arguments, nullptr, false);
      ASSERT_FALSE(arguments.is_discarded()) << one.arguments;
      EXPECT_TRUE(SchemaCheck(nlohmann::json::parse(tool.parameters)).valid(arguments)) << text;
    }
  }
}

TEST(GrammarCalls, OrJson) {
  const auto grammar =
      compile({.content = GrammarSpec::Content::kJsonSchema, .text = R"({"type":"array"})", .tools = {kNow}});
  EXPECT_TRUE(grammar->accepts("[\"</b>\"]"));
  EXPECT_TRUE(grammar->accepts(block(call("time::now", "\n"))));
  EXPECT_FALSE(grammar->accepts("[]" + block(call("time::now", "\n"))));
  // No marker can stand in the JSON, where a parser would take it for a call.
  EXPECT_FALSE(grammar->accepts("[\"\uFF5C\"]"));
  EXPECT_TRUE(grammar->accepts(R"(["\uff5c"])"));
}

TEST(GrammarCalls, AllowTheMarkerAsATokenOnly) {
  const auto policy = compile({.tools = {kWeather}})->make_policy();
  const auto accept = [&](std::string_view text) {
    for (const char c : text)
      ASSERT_EQ(policy->accept(3 + static_cast<unsigned char>(c)), PolicyVerdict::kContinue) << c;
  };
  const int32_t marker = tokenizer().find_added("\uFF5CDSML\uFF5C").value();
  accept("\n\n<");
  EXPECT_EQ(allowed_ids(mask_of(*policy, tokenizer().vocab_size()), tokenizer().vocab_size()),
            std::vector<int32_t>{marker});
  policy->accept(marker);
  accept(" calls>\n<");
  policy->accept(marker);
  accept(" invoke name=\"get_weather\">\n<");
  policy->accept(marker);
  accept(" parameter name=\"city\" string=\"true\">a");
  EXPECT_FALSE(allows(mask_of(*policy, tokenizer().vocab_size()), marker));
  accept("</");
  EXPECT_TRUE(allows(mask_of(*policy, tokenizer().vocab_size()), marker));
}

TEST(GrammarCalls, AreBytesWhereThereIsNoMarkerToken) {
  const Tokenizer plain = make_tokenizer(small_tokenizer());
  GrammarCompiler compiler(plain, kTestEos);
  const auto grammar = compiler.compile({.tools = {kWeather}});
  const std::string text =
      block(call("get_weather", parameter("city", true, "\uFF5C a") + parameter("units", true, "C")));
  EXPECT_TRUE(grammar->accepts(text));
  const auto policy = grammar->make_policy();
  PolicyVerdict verdict = PolicyVerdict::kContinue;
  for (const char c : text) {
    ASSERT_EQ(verdict, PolicyVerdict::kContinue);
    ASSERT_TRUE(allows(mask_of(*policy, plain.vocab_size()), 3 + static_cast<unsigned char>(c)));
    verdict = policy->accept(3 + static_cast<unsigned char>(c));
  }
  EXPECT_EQ(verdict, PolicyVerdict::kStop);
}

TEST(GrammarCalls, SayWhatIsWrong) {
  const auto message = [](const GrammarTool& tool) {
    return error_message(ErrorCode::kInvalidArgument, [&] { compile({.tools = {tool}}); });
  };
  EXPECT_THAT(message({"f", R"({"type":"string"})"}), HasSubstr("tool \"f\""));
  EXPECT_THAT(message({"f", R"({"type":"object","properties":{"a":{"not":{}}}})"}), HasSubstr("#/properties/a"));
  EXPECT_THAT(message({"a\"b", ""}), HasSubstr("cannot be written"));
  EXPECT_THAT(message({"", ""}), HasSubstr("cannot be written"));
  EXPECT_THAT(message({"f", R"({"type":"object","properties":{"a\nb":{}}})"}), HasSubstr("cannot be written"));
  EXPECT_THAT(message({"f", "{"}), HasSubstr("tool \"f\""));
  EXPECT_TRUE(compile({.tools = {{"f", "{}"}}})->accepts(block(call("f", parameter("x", true, "y")))));
}

}  // namespace
}  // namespace folio
