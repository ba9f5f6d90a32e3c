// folio_chat_probe: reads cases from standard input, one JSON object a line, and prints what Folio makes of each.
// {"messages", "tools", "thinking", "effort", "drop", "end"} is rendered, {"text", "start", "calls", "tools", "stop"}
// parsed. For comparisons with other implementations of the rules (compare_rules.py).
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "protocol/render.h"
#include "protocol/stream_parser.h"

namespace folio {
namespace {

using Output = nlohmann::ordered_json;

PromptEnd end_of(const std::string& name) {
  if (name == "generate") return PromptEnd::kGenerate;
  if (name == "none") return PromptEnd::kNoHeader;
  return name == "continue" ? PromptEnd::kContinue : PromptEnd::kReference;
}

Output render_case(const Json& given) {
  std::vector<Message> messages = parse_messages(*given.find("messages"));
  attach_tools(messages, parse_tools(*given.find("tools")));
  RenderOptions options;
  options.thinking.on = *given.find("thinking")->boolean();
  options.thinking.effort = static_cast<int>(*given.find("effort")->integer());
  options.thinking.drop_reasoning = *given.find("drop")->boolean();
  options.end = end_of(*given.find("end")->string());
  return {{"text", render(messages, options).text}};
}

Output parse_case(const Json& given) {
  const bool reasoning = *given.find("start")->string() == "reasoning";
  StreamParser parser({.start = reasoning ? AnswerStart::kReasoning : AnswerStart::kContent,
                       .calls = *given.find("calls")->boolean(),
                       .tools = std::make_shared<const std::vector<Tool>>(parse_tools(*given.find("tools")))});
  std::vector<Delta> deltas;
  parser.push(*given.find("text")->string(), deltas);
  parser.finish(*given.find("stop")->boolean() ? AnswerEnd::kStop : AnswerEnd::kLength, deltas);
  ParsedAnswer answer;
  answer.add(deltas);
  Output calls = Output::array();
  for (const ParsedAnswer::Call& call : answer.calls) calls.push_back({call.name, call.arguments, call.complete});
  return {{"reasoning", answer.reasoning}, {"content", answer.content}, {"calls", std::move(calls)}};
}

}  // namespace
}  // namespace folio

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    folio::Output output;
    try {
      const folio::Json given = folio::Json::parse(line, {.non_finite = true});
      output = given.find("messages") != nullptr ? folio::render_case(given) : folio::parse_case(given);
    } catch (const folio::Error& error) {
      output = {{"error", error.what()}};
    }
    std::cout << output.dump() << '\n';
  }
}
