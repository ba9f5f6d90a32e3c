#include "chat_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"

namespace folio {
namespace {

using nlohmann::ordered_json;

ordered_json saved(const Json& value) { return ordered_json::parse(json_text(value)); }

ordered_json saved(const Message& message) {
  static constexpr const char* kRoles[] = {"system", "user", "assistant", "tool", "developer", "latest_reminder"};
  ordered_json json = {{"role", kRoles[static_cast<size_t>(message.role)]}};
  std::string text;
  for (const ContentPart& part : message.content) text += (text.empty() ? "" : "\n\n") + part.text;
  json["content"] = text;
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    json["tool_calls"].push_back({{"id", call.id},
                                  {"type", "function"},
                                  {"function", {{"name", call.name}, {"arguments", json_text(call.arguments)}}}});
  }
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  for (const Tool& tool : message.tools) {
    json["tools"].push_back({{"type", "function"}, {"function", saved(tool.function)}});
  }
  if (message.response_format) json["response_format"] = saved(*message.response_format);
  return json;
}

}  // namespace

std::vector<Message> load_conversation(const std::string& path) {
  const Json json = Json::parse(read_file(path, kMaxMessagesBytes));
  const Json* list = json.object() != nullptr ? json.find("messages") : &json;
  if (list == nullptr) fail(ErrorCode::kInvalidArgument, path, ": has no messages");
  std::vector<Message> messages = parse_messages(*list, DeveloperRole::kSystem, path);
  const Json* tools = json.object() != nullptr ? json.find("tools") : nullptr;
  if (tools != nullptr) attach_tools(messages, parse_tools(*tools, path + ": tools"));
  return messages;
}

void save_conversation(const std::string& path, const std::vector<Message>& messages) {
  if (std::filesystem::exists(path)) fail(ErrorCode::kInvalidArgument, path, ": is there already; name another file");
  ordered_json list = ordered_json::array();
  for (const Message& message : messages) list.push_back(saved(message));
  std::ofstream out(path);
  out << list.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  if (!out.flush()) fail(ErrorCode::kInvalidArgument, path, ": cannot be written");
}

std::vector<Tool> conversation_tools(const std::vector<Message>& messages) {
  std::vector<Tool> tools;
  for (const Message& message : messages) tools.insert(tools.end(), message.tools.begin(), message.tools.end());
  return tools;
}

std::vector<ToolCall> open_calls(const std::vector<Message>& messages) {
  const auto turn = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const Message& message) { return message.role != Role::kTool; });
  if (turn == messages.rend() || turn->role != Role::kAssistant) return {};
  std::vector<ToolCall> calls = turn->tool_calls;
  const auto given = std::min<ptrdiff_t>(turn - messages.rbegin(), std::ssize(calls));
  calls.erase(calls.begin(), calls.begin() + given);
  return calls;
}

}  // namespace folio
