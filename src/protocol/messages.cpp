#include "protocol/messages.h"

#include <algorithm>
#include <array>

#include "protocol/field_error.h"

namespace folio {
namespace {

constexpr std::array<std::string_view, 6> kTasks = {"action", "query", "authority", "domain", "title", "read_url"};

// A member that is there and not null.
const Json* given(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

// A member that must be a string where it is given; "" where not.
std::string text_of(const Json& object, const char* key, const std::string& field) {
  const Json* value = given(object, key);
  if (value == nullptr) return {};
  if (value->string() == nullptr) fail_field(concat(field, ".", key), "must be a string, not ", value->type_name());
  return *value->string();
}

bool flag_of(const Json& object, const char* key, const std::string& field) {
  const Json* value = given(object, key);
  if (value == nullptr) return false;
  const auto flag = value->boolean();
  if (!flag) fail_field(concat(field, ".", key), "must be true or false, not ", value->type_name());
  return *flag;
}

// The URL of an image part; what it holds as base64 becomes a data: URL.
std::string image_source(const Json& part, const std::string& field) {
  for (const char* key : {"image_url", "image", "source", "url", "data"}) {
    const Json* value = given(part, key);
    if (value == nullptr) continue;
    if (value->string() != nullptr) return *value->string();
    if (const Json* url = given(*value, "url"); url != nullptr && url->string() != nullptr) return *url->string();
    if (const Json* data = given(*value, "data"); data != nullptr && data->string() != nullptr) {
      const Json* type = given(*value, "media_type");
      return concat("data:", type != nullptr && type->string() != nullptr ? *type->string() : "image/png", ";base64,",
                    *data->string());
    }
  }
  fail_field(field, "names no image: it needs an image_url, url, source or data");
}

bool is_text_type(std::string_view type) { return type == "text" || type == "input_text" || type == "output_text"; }
bool is_image_type(std::string_view type) { return type == "image_url" || type == "image" || type == "input_image"; }

std::vector<ContentPart> parse_content(const Json* content, const std::string& field);

ContentPart parse_part(const Json& part, const std::string& field) {
  using Kind = ContentPart::Kind;
  if (const std::string* text = part.string()) return {.text = *text};
  if (part.object() == nullptr) fail_field(field, "must be an object with a type, not ", part.type_name());
  const Json* type = part.find("type");
  if (type == nullptr || type->string() == nullptr) fail_field(field + ".type", "must be a string");
  const std::string& name = *type->string();
  if (is_text_type(name)) {
    const Json* text = part.find("text");
    if (text == nullptr || text->string() == nullptr) fail_field(field + ".text", "must be a string");
    return {.text = *text->string()};
  }
  if (is_image_type(name)) return {.kind = Kind::kImage, .image = image_source(part, field)};
  if (name == "tool_result") {
    ContentPart result{.kind = Kind::kToolResult};
    for (const char* key : {"tool_use_id", "tool_call_id", "id"}) {
      if (result.call_id.empty()) result.call_id = text_of(part, key, field);
    }
    result.parts = parse_content(part.find("content"), field + ".content");
    return result;
  }
  return {.kind = Kind::kUnsupported, .text = name};
}

std::vector<ContentPart> parse_content(const Json* content, const std::string& field) {
  if (content == nullptr || content->is_null()) return {{}};
  if (const std::string* text = content->string()) return {{.text = *text}};
  if (content->array() == nullptr) {
    fail_field(field, "must be a string, null or an array of parts, not ", content->type_name());
  }
  std::vector<ContentPart> parts;
  parts.reserve(content->array()->size());
  for (size_t i = 0; i < content->array()->size(); ++i) {
    parts.push_back(parse_part((*content->array())[i], element_of(field, i)));
  }
  return parts;
}

Role parse_role(const Json& message, DeveloperRole developer, const std::string& field) {
  const Json* role = message.find("role");
  if (role == nullptr || role->string() == nullptr) fail_field(field + ".role", "must be a string");
  const std::string& name = *role->string();
  if (name == "system") return Role::kSystem;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool" || name == "function") return Role::kTool;
  if (name == "latest_reminder") return Role::kLatestReminder;
  if (name == "developer") return developer == DeveloperRole::kUser ? Role::kDeveloper : Role::kSystem;
  fail_field(field + ".role", json_quote(name),
             " is unknown; it must be system, user, assistant, tool, developer, function or latest_reminder");
}

ToolCall parse_call(const Json& call, const std::string& field) {
  if (call.object() == nullptr) fail_field(field, "must be an object, not ", call.type_name());
  const Json* nested = given(call, "function");
  if (nested != nullptr && nested->object() == nullptr) {
    fail_field(field + ".function", "must be an object, not ", nested->type_name());
  }
  const Json& function = nested != nullptr ? *nested : call;
  const std::string place = nested != nullptr ? field + ".function" : field;
  ToolCall result;
  result.id = text_of(call, "id", field);
  if (result.id.empty()) result.id = text_of(function, "id", place);
  const std::string name = text_of(function, "name", place);
  if (name.empty()) fail_field(place + ".name", "must be a string that is not empty");
  result.name = qualified_name(qualified_name(name, function.find("namespace"), place), call.find("namespace"), field);
  const Json* arguments = given(function, "arguments");
  result.arguments = arguments != nullptr ? normalised_arguments(*arguments) : Json(Json::Object());
  return result;
}

std::vector<ToolCall> parse_calls(const Json& message, const std::string& field) {
  std::vector<ToolCall> parsed;
  if (const Json* calls = given(message, "tool_calls")) {
    const std::string place = field + ".tool_calls";
    if (calls->array() == nullptr) fail_field(place, "must be an array, not ", calls->type_name());
    for (size_t i = 0; i < calls->array()->size(); ++i) {
      parsed.push_back(parse_call((*calls->array())[i], element_of(place, i)));
    }
  } else if (const Json* call = given(message, "function_call")) {
    parsed.push_back(parse_call(*call, field + ".function_call"));
  }
  return parsed;
}

void parse_assistant(const Json& json, Message& message, const std::string& field) {
  message.reasoning = text_of(json, "reasoning_content", field);
  const Json* reasoning = given(json, "reasoning");  // elsewhere it is an object of settings: not ours to refuse
  if (message.reasoning.empty() && reasoning != nullptr && reasoning->string() != nullptr) {
    message.reasoning = *reasoning->string();
  }
  message.tool_calls = parse_calls(json, field);
  message.open = flag_of(json, "wo_eos", field);
}

Message parse_message(const Json& json, DeveloperRole developer, const std::string& field) {
  if (json.object() == nullptr) fail_field(field, "must be an object, not ", json.type_name());
  Message message;
  message.role = parse_role(json, developer, field);
  const bool is_user = message.role == Role::kUser;
  const Json* blocks = is_user ? given(json, "content_blocks") : nullptr;
  message.content = blocks != nullptr ? parse_content(blocks, field + ".content_blocks")
                                      : parse_content(json.find("content"), field + ".content");
  if (!is_user) {  // the others have text and images alone
    std::erase_if(message.content, [](const ContentPart& part) {
      return part.kind == ContentPart::Kind::kUnsupported || part.kind == ContentPart::Kind::kToolResult;
    });
  }
  if (message.role == Role::kAssistant) parse_assistant(json, message, field);
  if (message.role == Role::kTool) message.tool_call_id = text_of(json, "tool_call_id", field);
  if (const Json* tools = json.find("tools")) message.tools = parse_tools(*tools, field + ".tools");
  if (const Json* format = given(json, "response_format")) message.response_format = *format;
  message.task = text_of(json, "task", field);
  if (!message.task.empty()) check_task(message.task, field + ".task");
  return message;
}

// The first message, a system message; put there if need be.
Message& leading_system(std::vector<Message>& messages) {
  if (messages.empty() || messages[0].role != Role::kSystem) {
    messages.insert(messages.begin(), text_message(Role::kSystem, ""));
  }
  return messages[0];
}

bool has_image(const std::vector<ContentPart>& parts) {
  return std::any_of(parts.begin(), parts.end(), [](const ContentPart& part) {
    return part.kind == ContentPart::Kind::kImage || has_image(part.parts);
  });
}

}  // namespace

void check_task(const std::string& task, const std::string& field) {
  if (std::find(kTasks.begin(), kTasks.end(), task) != kTasks.end()) return;
  fail_field(field, json_quote(task), " is unknown; it must be action, query, authority, domain, title or read_url");
}

Message text_message(Role role, std::string text) {
  Message message;
  message.role = role;
  message.content.push_back({.text = std::move(text)});
  return message;
}

std::vector<Message> parse_messages(const Json& messages, DeveloperRole developer, const std::string& field) {
  if (messages.array() == nullptr) fail_field(field, "must be an array, not ", messages.type_name());
  if (messages.array()->empty()) fail_field(field, "must not be empty");
  std::vector<Message> parsed;
  parsed.reserve(messages.array()->size());
  for (size_t i = 0; i < messages.array()->size(); ++i) {
    const Json& message = (*messages.array())[i];
    parsed.push_back(parse_message(message, developer, element_of(field, i)));
    const bool prefix = message.object() != nullptr && flag_of(message, "prefix", element_of(field, i));
    if (prefix && i + 1 == messages.array()->size()) parsed.back().open = parsed.back().role == Role::kAssistant;
  }
  return parsed;
}

Json normalised_arguments(const Json& value) {
  Json parsed = value;
  for (int i = 0; i < 2 && parsed.string() != nullptr; ++i) {
    try {
      parsed = Json::parse(*parsed.string(), {.non_finite = true});
    } catch (const Error&) {
      break;
    }
  }
  if (parsed.object() != nullptr) return parsed;
  return Json(Json::Object{{"arguments", value}});
}

void attach_tools(std::vector<Message>& messages, std::vector<Tool> tools) {
  if (tools.empty()) return;
  std::vector<Tool>& own = leading_system(messages).tools;
  own.insert(own.end(), std::make_move_iterator(tools.begin()), std::make_move_iterator(tools.end()));
}

void attach_response_format(std::vector<Message>& messages, Json schema) {
  leading_system(messages).response_format = std::move(schema);
}

bool has_images(const std::vector<Message>& messages) {
  return std::any_of(messages.begin(), messages.end(),
                     [](const Message& message) { return has_image(message.content); });
}

}  // namespace folio
