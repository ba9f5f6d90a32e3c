#include "server/anthropic_request.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/anthropic_answer.h"
#include "server/api_error.h"
#include "server/format_fields.h"
#include "server/reply_json.h"

namespace folio {
namespace {

// A hash of each request that Claude Code puts in front of its prompt; it would defeat the prefix cache.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

ContentPart image_part(const Fields& block) {
  ContentPart part;
  part.kind = ContentPart::Kind::kImage;
  const Json* source = block.object("source");
  if (source == nullptr) block.refuse("source", "given");
  const Fields fields(*source, block.path("source"));
  part.image = fields.string("url").value_or(
      concat("data:", fields.string("media_type").value_or(""), ";base64,", fields.string("data").value_or("")));
  return part;
}

std::string document_text(const Fields& block) {
  const Json* source = block.object("source");
  if (source != nullptr) {
    const Fields fields(*source, block.path("source"));
    if (fields.string("type").value_or("") == "text") return fields.string("data").value_or("");
  }
  throw ApiError(400, concat("`", block.path("source"), "`: only documents of plain text are supported."),
                 block.path("source"));
}

// The content of a user turn or of a tool's result: text and images.
std::vector<ContentPart> read_parts(const Json& content, const std::string& name) {
  std::vector<ContentPart> parts;
  if (const std::string* text = content.string()) {
    parts.push_back({.text = *text});
    return parts;
  }
  if (content.array() == nullptr)
    throw ApiError(400, concat("`", name, "` must be a string or an array of blocks."), name);
  for (size_t i = 0; i < content.array()->size(); ++i) {
    const Fields block((*content.array())[i], concat(name, "[", i, "]"));
    const std::string type = block.string("type").value_or("");
    if (type == "text") {
      parts.push_back({.text = block.string("text").value_or("")});
    } else if (type == "image") {
      parts.push_back(image_part(block));
    } else if (type == "document") {
      parts.push_back({.text = document_text(block)});
    } else {
      block.refuse("type", "text, image, document, tool_use, tool_result or thinking in its place");
    }
  }
  return parts;
}

// Results of tools come first, whatever the client's order; the rest is a user turn behind them.
void read_user(const Fields& message, const Json& content, std::vector<Message>& messages) {
  const std::string name = message.path("content");
  if (content.array() == nullptr) {
    Message user;
    user.content = read_parts(content, name);
    messages.push_back(std::move(user));
    return;
  }
  Json::Array rest;
  for (size_t i = 0; i < content.array()->size(); ++i) {
    const Json& item = (*content.array())[i];
    const Fields block(item, concat(name, "[", i, "]"));
    if (block.string("type").value_or("") != "tool_result") {
      rest.push_back(item);
      continue;
    }
    Message result;
    result.role = Role::kTool;
    result.tool_call_id = block.string("tool_use_id").value_or("");
    if (const Json* parts = block.find("content")) result.content = read_parts(*parts, block.path("content"));
    messages.push_back(std::move(result));
  }
  if (rest.empty()) return;
  Message user;
  user.content = read_parts(Json(std::move(rest)), name);
  messages.push_back(std::move(user));
}

void read_assistant(const Fields& message, const Json& content, std::vector<Message>& messages) {
  Message assistant;
  assistant.role = Role::kAssistant;
  const std::string name = message.path("content");
  if (const std::string* text = content.string()) {
    assistant.content.push_back({.text = *text});
  } else if (content.array() == nullptr) {
    message.refuse("content", "a string or an array of blocks");
  } else {
    for (size_t i = 0; i < content.array()->size(); ++i) {
      const Fields block((*content.array())[i], concat(name, "[", i, "]"));
      const std::string type = block.string("type").value_or("");
      if (type == "text") {
        assistant.content.push_back({.text = block.string("text").value_or("")});
      } else if (type == "thinking") {
        assistant.reasoning += block.string("thinking").value_or("");
      } else if (type == "tool_use") {
        const Json* input = block.object("input");
        assistant.tool_calls.push_back({.id = block.string("id").value_or(""),
                                        .name = block.string("name").value_or(""),
                                        .arguments = input == nullptr ? Json(Json::Object{}) : *input});
      } else if (type != "redacted_thinking") {
        block.refuse("type", "text, thinking, redacted_thinking or tool_use in an assistant's turn");
      }
    }
  }
  messages.push_back(std::move(assistant));
}

// Blocks, or a string, joined without a separator.
void add_system(const Json* system, const std::string& name, std::string& text) {
  if (system == nullptr || system->is_null()) return;
  for (const ContentPart& part : read_parts(*system, name)) {
    if (part.kind != ContentPart::Kind::kText) throw ApiError(400, concat("`", name, "` must be text."), name);
    if (!part.text.starts_with(kBillingHeader)) text += part.text;
  }
}

std::vector<Message> read_messages(const Fields& fields) {
  const Json::Array* list = fields.array("messages");
  if (list == nullptr || list->empty()) fields.refuse("messages", "an array with at least one message");
  std::vector<Message> messages;
  std::string system;
  add_system(fields.find("system"), "system", system);
  for (size_t i = 0; i < list->size(); ++i) {
    const Fields message((*list)[i], concat("messages[", i, "]"));
    const std::string role = message.string("role").value_or("");
    const Json* content = message.find("content");
    if (content == nullptr) message.refuse("content", "given");
    if (role == "user") {
      read_user(message, *content, messages);
    } else if (role == "assistant") {
      read_assistant(message, *content, messages);
    } else if (role == "system") {
      add_system(content, message.path("content"), system);
    } else {
      message.refuse("role", "user or assistant");
    }
  }
  if (!system.empty()) messages.insert(messages.begin(), text_message(Role::kSystem, system));
  if (messages.empty()) fields.refuse("messages", "an array with at least one message");
  return messages;
}

// {name, description, input_schema} as a function of chat completions.
std::vector<Tool> read_tools(const Fields& fields) {
  const Json::Array* tools = fields.array("tools");
  if (tools == nullptr) return {};
  Json::Array functions;
  for (size_t i = 0; i < tools->size(); ++i) {
    const Fields tool((*tools)[i], concat("tools[", i, "]"));
    const std::string type = tool.string("type").value_or("custom");
    if (type != "custom") tool.refuse("type", concat("left out or custom: the server tool \"", type, "\" is not here"));
    Json function{Json::Object{}};
    function.set("name", Json(tool.string("name").value_or("")));
    if (const auto description = tool.string("description")) function.set("description", Json(*description));
    if (const Json* schema = tool.object("input_schema")) function.set("parameters", *schema);
    Json entry{Json::Object{}};
    entry.set("type", Json("function"));
    entry.set("function", std::move(function));
    functions.push_back(std::move(entry));
  }
  return parse_tools(Json(std::move(functions)));
}

void read_anthropic_tool_choice(const Fields& fields, ChatRequest& chat) {
  const Json* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  const Fields values(*choice, "tool_choice");
  const std::string type = values.string("type").value_or("");
  if (type == "none") {
    chat.tool_choice.kind = ToolChoice::Kind::kNone;
  } else if (type == "any") {
    chat.tool_choice.kind = ToolChoice::Kind::kRequired;
  } else if (type == "tool") {
    chat.tool_choice = {.kind = ToolChoice::Kind::kNamed, .name = values.string("name").value_or("")};
  } else if (type != "auto") {
    values.refuse("type", "auto, any, tool or none");
  }
  chat.parallel_calls = !values.boolean("disable_parallel_tool_use").value_or(false);
}

void read_thinking(const Fields& fields, ChatRequest& chat) {
  if (const Json* thinking = fields.object("thinking")) {
    const Fields values(*thinking, "thinking");
    const std::string type = values.string("type").value_or("");
    if (type != "enabled" && type != "adaptive" && type != "disabled") {
      values.refuse("type", "enabled, adaptive or disabled");
    }
    values.integer("budget_tokens", 0);
    chat.thinking.on = type != "disabled";
  }
  const Json* config = fields.object("output_config");
  if (config == nullptr) return;
  const Fields values(*config, "output_config");
  if (const Json* effort = values.find("effort")) {
    const int number = api_effort(*effort, "output_config.effort");
    if (number > 0) chat.thinking.effort = number;
  }
  if (const Json* format = values.object("format")) {
    chat.shown_format = read_response_format(*format, "output_config.format", chat.format);
  }
}

ChatRequest read_chat(const Fields& fields, const ServedModel& model) {
  ChatRequest chat;
  chat.messages = read_messages(fields);
  chat.tools = read_tools(fields);
  chat.thinking = model.thinking;
  read_anthropic_tool_choice(fields, chat);
  read_thinking(fields, chat);
  // An assistant's turn at the end is the beginning of the answer.
  const Message& last = chat.messages.back();
  if (last.role == Role::kAssistant && last.tool_calls.empty()) chat.end = PromptEnd::kContinue;
  return chat;
}

}  // namespace

Generation read_anthropic(const Json& body, const ApiContext& context) {
  const Fields fields(body);
  AnthropicAnswerOptions options;
  options.model = requested_model(fields, context.model);
  options.id = reply_id("msg_", context);
  options.stream = fields.boolean("stream").value_or(false);
  ChatRequest chat = read_chat(fields, context.model);
  if (!fields.has("max_tokens")) throw ApiError(400, "max_tokens: field required", "max_tokens");
  chat.max_tokens = fields.integer("max_tokens", 1);
  read_sampling(fields, context.model, chat.sampling);
  chat.sampling.choices = 1;
  chat.stops = read_stops(fields, "stop_sequences");

  ChatPlan plan = plan_chat(std::move(chat), context);
  options.prompt_tokens = std::ssize(plan.request->prompt);
  Generation generation{
      .id = options.id, .model = options.model, .stream = options.stream, .requests = {plan.request}, .answer = {}};
  generation.answer = std::make_unique<AnthropicAnswer>(*context.model.tokenizer, plan.parser, std::move(options));
  return generation;
}

HttpReply count_anthropic_tokens(const Json& body, const ApiContext& context) {
  const Fields fields(body);
  requested_model(fields, context.model);
  ChatRequest chat = read_chat(fields, context.model);
  check_tool_choice(chat);
  const auto ids =
      render_chat(chat, context.model).tokens(*context.model.tokenizer, context.model.special_in_user_text);
  return {.body = dump(ReplyJson{{"input_tokens", ids.size()}}), .headers = {}};
}

}  // namespace folio
