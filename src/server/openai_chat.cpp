#include "server/openai_chat.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/api_error.h"
#include "server/chat_answer.h"
#include "server/format_fields.h"
#include "server/stream_fields.h"

namespace folio {
namespace {

void read_tool_choice(const Fields& fields, ChatRequest& chat) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (const std::string* word = choice->string()) {
    if (*word == "none") {
      chat.tool_choice.kind = ToolChoice::Kind::kNone;
    } else if (*word == "required" || *word == "any") {
      chat.tool_choice.kind = ToolChoice::Kind::kRequired;
    } else if (*word != "auto") {
      fields.refuse("tool_choice", "\"none\", \"auto\", \"required\" or an object that names a function");
    } else if (!fields.has("tools") &&
               declared_tools(chat).empty()) {  // but `tools` may be empty: many clients send it
      throw ApiError(400, "`tool_choice` needs `tools`: give at least one tool.", "tool_choice");
    }
    return;
  }
  const Fields named(*choice, "tool_choice");
  const Json* function = named.object("function");
  const auto name = Fields(function == nullptr ? *choice : *function, "tool_choice.function").string("name");
  if (!name) named.refuse("function.name", "given");
  chat.tool_choice = {.kind = ToolChoice::Kind::kNamed, .name = *name};
}

void read_prompt_end(const Fields& fields, ChatRequest& chat) {
  const bool go_on = fields.boolean("continue_final_message").value_or(false);
  const auto header = fields.boolean("add_generation_prompt");
  if (go_on && header.value_or(false)) {
    throw ApiError(400, "`continue_final_message` and `add_generation_prompt` exclude each other.",
                   "continue_final_message");
  }
  if (go_on && (chat.messages.empty() || chat.messages.back().role != Role::kAssistant)) {
    throw ApiError(400, "`continue_final_message` needs a last message of the role assistant.",
                   "continue_final_message");
  }
  if (go_on) {
    chat.end = PromptEnd::kContinue;
  } else if (!header.value_or(true)) {
    chat.end = PromptEnd::kNoHeader;
  }
}

void read_limits(const Fields& fields, ChatRequest& chat) {
  const auto limit = fields.integer("max_tokens", 1);
  const auto newer = fields.integer("max_completion_tokens", 1);
  chat.max_tokens = newer ? newer : limit;
  if (const auto budget = fields.integer("thinking_token_budget", 0)) chat.thinking_budget = *budget;
}

void read_logprobs(const Fields& fields, ChatAnswerOptions& options, Request& sampling) {
  options.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !options.logprobs) {
    throw ApiError(400, "`top_logprobs` is only allowed with `logprobs`: true.", "top_logprobs");
  }
  options.top_logprobs = static_cast<int32_t>(top.value_or(0));
  if (const auto of_prompt = fields.integer("prompt_logprobs", 0, kMaxTopLogprobs)) {
    if (options.stream) fields.refuse("prompt_logprobs", "left out of streams");
    options.prompt_logprobs = static_cast<int32_t>(*of_prompt);
    sampling.wants_prompt_rows = true;
  }
  sampling.logprobs = std::max(options.top_logprobs, options.prompt_logprobs.value_or(0));
}

std::string echoed_text(const Fields& fields, const ChatRequest& chat) {
  if (!fields.boolean("echo").value_or(false) || chat.messages.back().role != Role::kAssistant) return "";
  std::string text;
  for (const ContentPart& part : chat.messages.back().content) text += part.text;
  return text;
}

}  // namespace

ChatRequest read_chat_prompt(const Json& body, const ServedModel& model) {
  const Fields fields(body);
  ChatRequest chat;
  const Json::Array* messages = fields.array("messages");
  if (messages == nullptr || messages->empty()) fields.refuse("messages", "an array with at least one message");
  chat.messages = parse_messages(*body.find("messages"), model.developer_role);
  if (const Json* tools = fields.find("tools")) chat.tools = parse_tools(*tools);
  chat.thinking = requested_thinking(body, model.thinking);
  read_tool_choice(fields, chat);
  read_prompt_end(fields, chat);
  if (const auto task = fields.string("task")) chat.messages.back().task = *task;
  return chat;
}

Generation read_openai_chat(const Json& body, const ApiContext& context) {
  const Fields fields(body);
  ChatAnswerOptions options;
  options.model = requested_model(fields, context.model);
  options.id = reply_id("chatcmpl-", context);
  ChatRequest chat = read_chat_prompt(body, context.model);
  read_sampling(fields, context.model, chat.sampling);
  read_limits(fields, chat);
  chat.shown_format = read_format(fields, chat.format);
  chat.stops = read_stops(fields);
  chat.allowed_ids = read_allowed_ids(fields, context.model);
  chat.bad_words = read_bad_words(fields, context.model);
  chat.truncation = read_truncation(fields);
  chat.parallel_calls = fields.boolean("parallel_tool_calls").value_or(true);
  const StreamFields stream = read_stream(fields);
  options.stream = stream.stream;
  options.include_usage = stream.include_usage;
  options.continuous_usage = stream.continuous_usage;
  read_logprobs(fields, options, chat.sampling);
  options.include_reasoning = fields.boolean("include_reasoning").value_or(true);
  options.reasoning_alias = context.model.reasoning_alias;
  options.unclosed_think_content = context.model.unclosed_think_content;
  options.ids_as_tokens = fields.boolean("return_tokens_as_token_ids").value_or(false);
  options.return_ids = fields.boolean("return_token_ids").value_or(false);
  options.stop_ids = chat.sampling.stop_ids;
  options.echo = echoed_text(fields, chat);

  ChatPlan plan = plan_chat(std::move(chat), context);
  options.named_call = plan.named_call;
  options.prompt = plan.request->prompt;
  Generation generation{
      .id = options.id, .model = options.model, .stream = options.stream, .requests = {plan.request}, .answer = {}};
  generation.answer = std::make_unique<ChatAnswer>(*context.model.tokenizer, std::move(plan.parser),
                                                   plan.request->choices, std::move(options));
  return generation;
}

HttpReply render_openai_chat(const Json& body, const ApiContext& context) {
  requested_model(Fields(body), context.model);
  ChatRequest chat = read_chat_prompt(body, context.model);
  check_tool_choice(chat);
  const Prompt prompt = render_chat(chat, context.model);
  const auto ids = prompt.tokens(*context.model.tokenizer, context.model.special_in_user_text);
  return {.body = dump(ReplyJson{{"prompt", prompt.text}, {"prompt_token_ids", ids}, {"count", ids.size()}}),
          .headers = {}};
}

}  // namespace folio
