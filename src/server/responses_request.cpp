#include "server/responses_request.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/api_error.h"
#include "server/format_fields.h"
#include "server/reply_json.h"
#include "server/responses_answer.h"
#include "server/responses_items.h"

namespace folio {
namespace {

void read_response_tool_choice(const Fields& fields, ChatRequest& chat) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  std::string word;
  if (choice->string() != nullptr) {
    word = *choice->string();
  } else {
    const Fields values(*choice, "tool_choice");
    const std::string type = values.string("type").value_or("");
    if (type == "function" || type == "custom") {
      const Json* name_space = values.find("namespace");
      const std::string name = values.string("name").value_or("");
      chat.tool_choice = {.kind = ToolChoice::Kind::kNamed, .name = qualified_name(name, name_space, "tool_choice")};
      return;
    }
    word = type == "allowed_tools" ? values.string("mode").value_or("auto") : "auto";  // else a hosted tool
  }
  if (word == "none") {
    chat.tool_choice.kind = ToolChoice::Kind::kNone;
  } else if (word == "required") {
    chat.tool_choice.kind = ToolChoice::Kind::kRequired;
  } else if (word != "auto") {
    fields.refuse("tool_choice", "\"none\", \"auto\", \"required\" or an object that names a tool");
  }
}

void read_reasoning(const Fields& fields, const ServedModel& model, ChatRequest& chat) {
  chat.thinking = model.thinking;
  const Json* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  const Json* effort = Fields(*reasoning, "reasoning").find("effort");
  if (effort == nullptr) return;
  const int number = api_effort(*effort, "reasoning.effort");
  chat.thinking.on = number > 0;
  if (number > 0) chat.thinking.effort = number;
}

// Settings of the request that its reply repeats.
ReplyJson echoed_settings(const Json& body) {
  ReplyJson settings = {{"instructions", nullptr},
                        {"max_output_tokens", nullptr},
                        {"metadata", ReplyJson::object()},
                        {"parallel_tool_calls", true},
                        {"previous_response_id", nullptr},
                        {"reasoning", nullptr},
                        {"store", true},
                        {"temperature", 1.0},
                        {"text", {{"format", {{"type", "text"}}}}},
                        {"tool_choice", "auto"},
                        {"tools", ReplyJson::array()},
                        {"top_p", 1.0},
                        {"truncation", "disabled"},
                        {"user", nullptr}};
  for (auto& [name, value] : settings.items()) {
    const Json* given = body.find(name);
    if (given != nullptr && !given->is_null()) value = to_reply(*given);
  }
  return settings;
}

}  // namespace

Generation read_responses(const Json& body, const ApiContext& context) {
  const Fields fields(body);
  ResponsesAnswerOptions options;
  options.model = requested_model(fields, context.model);
  options.id = reply_id("resp_", context);
  options.stream = fields.boolean("stream").value_or(false);
  if (fields.boolean("background").value_or(false)) fields.refuse("background", "false: there are no background jobs");
  const Json* input = fields.find("input");
  if (input == nullptr) fields.refuse("input", "given");

  ChatRequest chat;
  if (const auto previous = fields.string("previous_response_id")) {
    const auto stored = context.responses.find(*previous);
    if (stored == nullptr) {
      throw ApiError(404, concat("There is no response `", *previous, "`."), "previous_response_id");
    }
    chat.messages = stored->messages;
  }
  read_input(*input, context.model.developer_role, context.responses, chat.messages);
  if (chat.messages.empty()) fields.refuse("input", "a string or an array with at least one item");
  options.messages = chat.messages;
  if (const auto instructions = fields.string("instructions")) {
    chat.messages.insert(chat.messages.begin(), text_message(Role::kSystem, *instructions));
  }
  ResponseTools tools = read_response_tools(fields);
  chat.tools = std::move(tools.tools);
  options.custom_tools = std::move(tools.custom);
  read_response_tool_choice(fields, chat);
  read_reasoning(fields, context.model, chat);
  if (const Json* text = fields.object("text")) {
    if (const Json* format = Fields(*text, "text").object("format")) {
      chat.shown_format = read_response_format(*format, "text.format", chat.format);
    }
  }
  chat.parallel_calls = fields.boolean("parallel_tool_calls").value_or(true);
  chat.max_tokens = fields.integer("max_output_tokens", 1);
  read_sampling(fields, context.model, chat.sampling);
  chat.sampling.choices = 1;
  options.settings = echoed_settings(body);
  options.store = fields.boolean("store").value_or(true) ? &context.responses : nullptr;

  ChatPlan plan = plan_chat(std::move(chat), context);
  Generation generation{
      .id = options.id, .model = options.model, .stream = options.stream, .requests = {plan.request}, .answer = {}};
  generation.answer = std::make_unique<ResponsesAnswer>(*context.model.tokenizer, plan.parser, std::move(options));
  return generation;
}

}  // namespace folio
