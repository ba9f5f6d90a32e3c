// The messages of a conversation, as every API of the server hands them on (protocol spec 2.1).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/json.h"
#include "protocol/tools.h"

namespace folio {

enum class Role : uint8_t {
  kSystem,
  kUser,
  kAssistant,
  kTool,
  kDeveloper,       // only under DeveloperRole::kUser
  kLatestReminder,  // date and place, between the system message and the first user turn
};

struct ContentPart {
  enum class Kind : uint8_t { kText, kImage, kToolResult, kUnsupported };
  Kind kind = Kind::kText;
  std::string text{};                // kText: the text; kUnsupported: the name of its type
  std::string image{};               // kImage: its URL, or its bytes as a data: URL
  std::string call_id{};             // kToolResult: the call that it answers, "" if unknown
  std::vector<ContentPart> parts{};  // kToolResult: its content
};

struct ToolCall {
  std::string id;    // "" if unknown
  std::string name;  // qualified when the tool has a namespace
  Json arguments;    // an object
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentPart> content;
  std::string reasoning;                // assistant
  std::vector<ToolCall> tool_calls;     // assistant
  std::string tool_call_id;             // tool
  std::vector<Tool> tools;              // system, developer
  std::optional<Json> response_format;  // system, developer
  std::string task;                     // "" or what check_task accepts; user, system
  bool open = false;                    // assistant: the turn is unfinished ("wo_eos"; at the end also "prefix")
};

// Throws FieldError, naming `field`, unless `task` is action, query, authority, domain, title or read_url.
void check_task(const std::string& task, const std::string& field);

Message text_message(Role role, std::string text);

// What the role "developer" means, which the released encoding does not know (protocol spec 5.4).
enum class DeveloperRole : uint8_t {
  kSystem,  // a system message
  kUser,    // a user turn of its own that may carry tools, as vLLM and SGLang have it
};

// Reads the "messages" of a request. Accepts what clients send: content as a string, null or a list of parts,
// "reasoning" for "reasoning_content", arguments as a string or an object, the roles "developer" and "function", extra
// fields. Throws FieldError naming the field; `field` names the list in it.
std::vector<Message> parse_messages(const Json& messages, DeveloperRole developer = DeveloperRole::kSystem,
                                    const std::string& field = "messages");

// Arguments of a call as an object: the value itself, or what it spells as JSON text, at most twice encoded; else
// {"arguments": value} (protocol spec 2.7). Never fails.
Json normalised_arguments(const Json& value);

// Hands the tools of a request, or the schema of its response format, to the first system message; an empty one is put
// in front when the conversation does not begin with one.
void attach_tools(std::vector<Message>& messages, std::vector<Tool> tools);
void attach_response_format(std::vector<Message>& messages, Json schema);

// Images of all messages.
bool has_images(const std::vector<Message>& messages);

}  // namespace folio
