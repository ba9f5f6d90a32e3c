// What messages, tools and thinking accept, and the fields that refusals name.
#include "protocol/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/field_error.h"
#include "protocol/test_util.h"
#include "protocol/thinking.h"

namespace folio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Message> messages(const std::string& text) { return parse_messages(Json::parse(text)); }
Message message(const std::string& text) { return messages("[" + text + "]").at(0); }

template <typename Action>
void expect_refusal(const Action& action, const std::string& field, const std::string& reason) {
  try {
    action();
    ADD_FAILURE() << "accepted, instead of " << field << ": " << reason;
  } catch (const FieldError& error) {
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.what(), HasSubstr(reason));
  }
}

TEST(Messages, Refusals) {
  struct Case {
    std::string text, field, reason;
  };
  const std::vector<Case> cases = {
      {R"({})", "messages", "must be an array, not an object"},
      {R"("hi")", "messages", "must be an array, not a string"},
      {R"([])", "messages", "must not be empty"},
      {R"(["hi"])", "messages[0]", "must be an object, not a string"},
      {R"([{}])", "messages[0].role", "must be a string"},
      {R"([{"role":7}])", "messages[0].role", "must be a string"},
      {R"([{"role":"user","content":"a"},{"role":"narrator"}])", "messages[1].role", "\"narrator\" is unknown"},
      {R"([{"role":"user","content":7}])", "messages[0].content", "not a number"},
      {R"([{"role":"user","content":{"type":"text","text":"a"}}])", "messages[0].content", "not an object"},
      {R"([{"role":"user","content":[7]}])", "messages[0].content[0]", "must be an object with a type"},
      {R"([{"role":"user","content":[{"text":"a"}]}])", "messages[0].content[0].type", "must be a string"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text", "must be a string"},
      {R"([{"role":"user","content":[{"type":"text","text":null}]}])", "messages[0].content[0].text",
       "must be a string"},
      {R"([{"role":"user","content":[{"type":"image_url"}]}])", "messages[0].content[0]", "names no image"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])", "messages[0].content[0]",
       "names no image"},
      {R"([{"role":"assistant","reasoning_content":[]}])", "messages[0].reasoning_content", "must be a string"},
      {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls", "must be an array"},
      {R"([{"role":"assistant","tool_calls":[1]}])", "messages[0].tool_calls[0]", "must be an object"},
      {R"([{"role":"assistant","tool_calls":[{"function":"f"}]}])", "messages[0].tool_calls[0].function",
       "must be an object"},
      {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])", "messages[0].tool_calls[0].function.name",
       "not empty"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"a::b::c"}}]}])",
       "messages[0].tool_calls[0].function.name", "more than one namespace"},
      {R"([{"role":"assistant","tool_calls":[{"namespace":"x","function":{"name":"a::b"}}]}])",
       "messages[0].tool_calls[0].namespace", "is not the namespace in the name"},
      {R"([{"role":"tool","tool_call_id":5,"content":""}])", "messages[0].tool_call_id", "must be a string"},
      {R"([{"role":"user","content":"x","task":"dance"}])", "messages[0].task", "\"dance\" is unknown"},
      {R"([{"role":"assistant","content":"x","prefix":"yes"}])", "messages[0].prefix", "must be true or false"},
      {R"([{"role":"system","tools":[{"type":"function"}]}])", "messages[0].tools[0].function", "is missing"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    expect_refusal([&] { messages(c.text); }, c.field, c.reason);
  }
}

TEST(Messages, AcceptsWhatClientsSend) {
  EXPECT_EQ(message(R"({"role":"developer","content":"x"})").role, Role::kSystem);
  EXPECT_EQ(message(R"({"role":"function","name":"f","content":"x"})").role, Role::kTool);
  EXPECT_EQ(message(R"({"role":"tool","content":null})").tool_call_id, "");
  EXPECT_EQ(message(R"({"role":"assistant","content":null,"reasoning":"r"})").reasoning, "r");
  EXPECT_EQ(message(R"({"role":"assistant","reasoning_content":"a","reasoning":"b"})").reasoning, "a");
  EXPECT_EQ(message(R"({"role":"assistant","reasoning_content":"","reasoning":{"effort":"x"}})").reasoning, "");
  EXPECT_TRUE(message(R"({"role":"assistant","content":"x","prefix":true})").open);
  const auto older = messages(R"([{"role":"assistant","content":"x","prefix":true},{"role":"user","content":"y"}])");
  EXPECT_FALSE(older[0].open);  // what was a prefix once is a finished turn by now
  EXPECT_TRUE(message(R"({"role":"assistant","content":"x","wo_eos":true})").open);
  EXPECT_FALSE(message(R"({"role":"assistant","content":"x","prefix":null,"mask":1,"refusal":null})").open);
  EXPECT_EQ(message(R"({"role":"user","content":["a",{"type":"input_text","text":"b"}]})").content.size(), 2u);
  EXPECT_EQ(message(R"({"role":"system","content":[{"type":"video"},{"type":"text","text":"b"}]})").content.size(), 1u);
  EXPECT_EQ(
      message(R"({"role":"user","content":"x","cache_control":{"type":"ephemeral"},"name":"bob"})").content.size(), 1u);
}

TEST(Messages, ImageSources) {
  const auto source = [](const std::string& part) {
    return message(concat(R"({"role":"user","content":[)", part, "]}")).content.at(0).image;
  };
  EXPECT_EQ(source(R"({"type":"image_url","image_url":{"url":"u","detail":"low"}})"), "u");
  EXPECT_EQ(source(R"({"type":"image_url","image_url":"u"})"), "u");
  EXPECT_EQ(source(R"({"type":"input_image","image_url":"u"})"), "u");
  EXPECT_EQ(source(R"({"type":"image","url":"u"})"), "u");
  EXPECT_EQ(source(R"({"type":"image","source":{"type":"url","url":"u"}})"), "u");
  EXPECT_EQ(source(R"({"type":"image","source":{"type":"base64","media_type":"image/gif","data":"QQ=="}})"),
            "data:image/gif;base64,QQ==");
  EXPECT_TRUE(has_images(messages(R"([{"role":"tool","content":[{"type":"image","url":"u"}]}])")));
  EXPECT_FALSE(has_images(messages(R"([{"role":"user","content":"image"}])")));
}

TEST(Messages, Arguments) {
  const auto arguments = [](const std::string& value) { return python_json(normalised_arguments(Json::parse(value))); };
  EXPECT_EQ(arguments(R"({"a":1})"), R"({"a": 1})");
  EXPECT_EQ(arguments(R"("{\"a\":1.50}")"), R"({"a": 1.5})");
  EXPECT_EQ(arguments(R"("\"{\\\"a\\\":1}\"")"), R"({"a": 1})");
  EXPECT_EQ(arguments(R"("{\"a\":NaN}")"), R"({"a": NaN})");
  EXPECT_EQ(arguments(R"("{\"a\":")"), R"({"arguments": "{\"a\":"})");
  EXPECT_EQ(arguments(R"("[1]")"), R"({"arguments": "[1]"})");
  EXPECT_EQ(arguments(R"("")"), R"({"arguments": ""})");
  EXPECT_EQ(arguments(R"([1])"), R"({"arguments": [1]})");
  EXPECT_EQ(arguments(R"("\"\\\"{}\\\"\"")"), R"({"arguments": "\"\\\"{}\\\"\""})");  // three times: too often
  const auto call = [](const std::string& function) {
    return message(concat(R"({"role":"assistant","tool_calls":[{"id":"c","function":)", function, "}]}"))
        .tool_calls.at(0);
  };
  EXPECT_EQ(python_json(call(R"({"name":"f"})").arguments), "{}");
  EXPECT_EQ(python_json(call(R"({"name":"f","arguments":null})").arguments), "{}");
}

TEST(Messages, CallsOfOlderClients) {
  const Message old = message(R"({"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}})");
  ASSERT_EQ(old.tool_calls.size(), 1u);
  EXPECT_EQ(old.tool_calls[0].name, "f");
  const Message nested =
      message(R"({"role":"assistant","tool_calls":[{"function":{"id":"i","namespace":"n","name":"f"}}]})");
  EXPECT_EQ(nested.tool_calls[0].id, "i");
  EXPECT_EQ(nested.tool_calls[0].name, "n::f");
}

std::vector<Tool> tools(const std::string& text) { return parse_tools(Json::parse(text)); }

TEST(Tools, Refusals) {
  struct Case {
    std::string text, field, reason;
  };
  const std::vector<Case> cases = {
      {R"({})", "tools", "must be an array"},
      {R"([1])", "tools[0]", "must be an object"},
      {R"([{"type":"web_search"}])", "tools[0].type", "\"web_search\" is not supported"},
      {R"([{"type":"function","function":[]}])", "tools[0].function", "must be an object, not an array"},
      {R"([{"type":"function","function":{}}])", "tools[0].function.name", "must be a string"},
      {R"([{"type":"function","function":{"name":""}}])", "tools[0].function.name", "must not be empty"},
      {R"([{"type":"function","function":{"name":"a\"b"}}])", "tools[0].function.name", "has a quote"},
      {R"([{"type":"function","function":{"name":"a\nb"}}])", "tools[0].function.name", "control character"},
      {R"([{"type":"function","function":{"name":"a"}},{"function":{"name":"a::b::c"}}])", "tools[1].function.name",
       "more than one namespace"},
      {R"([{"namespace":"a::b","function":{"name":"c"}}])", "tools[0].namespace", "has a namespace itself"},
      {R"([{"namespace":"a","function":{"name":"c","namespace":"b"}}])", "tools[0].namespace", "is not the namespace"},
      {R"([{"namespace":7,"function":{"name":"c"}}])", "tools[0].namespace", "must be a string or an object"},
      {R"([{"namespace":{},"function":{"name":"c"}}])", "tools[0].namespace.name", "must be a string"},
      {R"([{"type":"function","name":7}])", "tools[0].name", "must be a string"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    expect_refusal([&] { tools(c.text); }, c.field, c.reason);
  }
  expect_refusal([&] { tools(concat(R"([{"function":{"name":")", std::string(257, 'x'), "\"}}]")); },
                 "tools[0].function.name", "257 bytes");
}

TEST(Tools, Namespaces) {
  const auto shown = [](const std::string& tool) { return python_json(tools("[" + tool + "]").at(0).function); };
  EXPECT_EQ(shown(R"({"function":{"strict":true,"name":"f","x":1}})"), R"({"strict": true, "name": "f", "x": 1})");
  EXPECT_EQ(shown(R"({"namespace":"n","function":{"name":"n::f"}})"), R"({"name": "n::f"})");
  EXPECT_EQ(shown(R"({"namespace":"n","function":{"name":"f","namespace":"n"}})"), R"({"name": "n::f"})");
  EXPECT_EQ(shown(R"({"namespace":null,"function":{"name":"f"}})"), R"({"name": "f"})");
  EXPECT_EQ(shown(R"({"namespace":{"name":"n","description":"N"},"function":{"name":"f"}})"),
            R"({"name": "n::f", "description": "N"})");
  EXPECT_EQ(shown(R"({"namespace":{"name":"n","description":"N"},"function":{"description":"D","name":"f"}})"),
            R"({"description": "N\nD", "name": "n::f"})");
  EXPECT_EQ(shown(R"({"type":"function","name":"f","parameters":{"type":"object"}})"),
            R"({"name": "f", "parameters": {"type": "object"}})");
  EXPECT_TRUE(parse_tools(Json()).empty());
}

TEST(Tools, ParameterTypes) {
  const Tool tool = tools(R"([{"function":{"name":"f","parameters":{"properties":{
      "s":{"type":"string"},"n":{"type":["string","null"]},"a":{"anyOf":[{"type":"string"},{"type":"null"}]},
      "i":{"type":"integer"},"m":{"type":["string","integer"]},"e":{"enum":["a"]},"u":{"oneOf":[{"type":"string"},{}]},
      "bad":{"type":7}}}}}])")
                        .at(0);
  EXPECT_EQ(parameter_type(&tool, "s"), ParameterType::kString);
  EXPECT_EQ(parameter_type(&tool, "n"), ParameterType::kStringOrNull);
  EXPECT_EQ(parameter_type(&tool, "a"), ParameterType::kStringOrNull);
  for (const char* other : {"i", "m", "e", "u", "bad"}) EXPECT_EQ(parameter_type(&tool, other), ParameterType::kOther);
  EXPECT_EQ(parameter_type(&tool, "missing"), ParameterType::kUndeclared);
  EXPECT_EQ(parameter_type(nullptr, "s"), ParameterType::kOther);
  EXPECT_TRUE(declares_all(&tool, *Json::parse(R"({"s":1,"i":2})").object()));
  EXPECT_FALSE(declares_all(&tool, *Json::parse(R"({"s":1,"x":2})").object()));
}

TEST(Thinking, EncoderEfforts) {
  const auto effort = [](const std::string& text) { return encoder_effort(Json::parse(text), "effort"); };
  EXPECT_EQ(effort("1"), 1);
  EXPECT_EQ(effort("100"), 100);
  EXPECT_EQ(effort("\"low\""), 50);
  EXPECT_EQ(effort("\"high\""), 75);
  EXPECT_EQ(effort("\"max\""), 100);
  for (const char* bad : {"0", "101", "-1", "75.0", "1e1", "true", "null", "\"medium\"", "\"none\"", "\"xhigh\"",
                          "\"75\"", "\"\"", "[75]"}) {
    expect_refusal([&] { effort(bad); }, "effort", "is no effort");
  }
}

TEST(Thinking, Requested) {
  const auto asked = [](const std::string& request) {
    const Thinking thinking = requested_thinking(Json::parse(request));
    return std::make_tuple(thinking.on, thinking.effort, thinking.drop_reasoning);
  };
  const auto is = [](bool on, int effort, bool drop = true) { return std::make_tuple(on, effort, drop); };
  EXPECT_EQ(asked("{}"), is(true, 75));
  EXPECT_EQ(asked(R"({"thinking":{"type":"disabled"}})"), is(false, 75));
  EXPECT_EQ(asked(R"({"thinking":{"type":"disabled"},"reasoning_effort":"max"})"), is(false, 100));
  EXPECT_EQ(asked(R"({"thinking":{"type":"enabled"},"reasoning_effort":"none"})"), is(true, 75));
  EXPECT_EQ(asked(R"({"thinking":{"type":"enabled","effort":"low"},"reasoning_effort":"max"})"), is(true, 50));
  EXPECT_EQ(asked(R"({"reasoning_effort":"none"})"), is(false, 75));
  EXPECT_EQ(asked(R"({"reasoning_effort":"none","chat_template_kwargs":{"thinking":true}})"), is(false, 75));
  EXPECT_EQ(asked(R"({"reasoning_effort":"minimal"})"), is(true, 50));
  EXPECT_EQ(asked(R"({"reasoning_effort":"medium"})"), is(true, 75));
  EXPECT_EQ(asked(R"({"reasoning_effort":"xhigh"})"), is(true, 75));
  EXPECT_EQ(asked(R"({"reasoning_effort":"ultra"})"), is(true, 100));
  EXPECT_EQ(asked(R"({"reasoning_effort":33})"), is(true, 33));
  EXPECT_EQ(asked(R"({"reasoning_effort":null,"thinking":null})"), is(true, 75));
  EXPECT_EQ(asked(R"({"chat_template_kwargs":{"enable_thinking":false}})"), is(false, 75));
  EXPECT_EQ(asked(R"({"chat_template_kwargs":{"thinking":false,"enable_thinking":true}})"), is(false, 75));
  EXPECT_EQ(asked(R"({"chat_template_kwargs":{"reasoning_effort":5,"drop_thinking":false}})"), is(true, 5, false));
  EXPECT_FALSE(requested_thinking(Json::parse("{}"), {.on = false}).on);

  const auto refused = [&](const std::string& request, const std::string& field) {
    expect_refusal([&] { asked(request); }, field, "");
  };
  refused(R"({"thinking":true})", "thinking");
  refused(R"({"thinking":{"type":"maybe"}})", "thinking.type");
  refused(R"({"thinking":{"type":"enabled","effort":"x"}})", "thinking.effort");
  refused(R"({"reasoning_effort":0})", "reasoning_effort");
  refused(R"({"reasoning_effort":50.5})", "reasoning_effort");
  refused(R"({"chat_template_kwargs":[]})", "chat_template_kwargs");
  refused(R"({"chat_template_kwargs":{"enable_thinking":1}})", "chat_template_kwargs.enable_thinking");
}

TEST(Messages, ToolsAndFormatGoToTheSystemMessage) {
  std::vector<Message> with = messages(R"([{"role":"system","content":"S"},{"role":"user","content":"u"}])");
  attach_tools(with, tools(R"([{"function":{"name":"f"}}])"));
  attach_response_format(with, Json::parse("{}"));
  EXPECT_EQ(with.size(), 2u);
  EXPECT_EQ(with[0].tools.at(0).name, "f");
  EXPECT_TRUE(with[0].response_format);
  std::vector<Message> without = messages(R"([{"role":"user","content":"u"},{"role":"system","content":"S"}])");
  attach_tools(without, {});
  EXPECT_EQ(without.size(), 2u);
  attach_tools(without, tools(R"([{"function":{"name":"f"}}])"));
  ASSERT_EQ(without.size(), 3u);
  EXPECT_EQ(without[0].role, Role::kSystem);
  EXPECT_EQ(without[0].tools.size(), 1u);
}

}  // namespace
}  // namespace folio
