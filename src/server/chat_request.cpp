#include "server/chat_request.h"

#include <algorithm>

#include "base/error.h"
#include "protocol/answer_reader.h"
#include "protocol/chat_policy.h"
#include "server/api_error.h"
#include "server/token_policies.h"

namespace folio {
namespace {

bool calls_forced(const ToolChoice& choice) {
  return choice.kind == ToolChoice::Kind::kRequired || choice.kind == ToolChoice::Kind::kNamed;
}

GrammarTool grammar_tool(const Tool& tool) {
  const Json* parameters = tool.function.find("parameters");
  const bool given = parameters != nullptr && !parameters->is_null();
  return {.name = tool.name, .parameters = given ? json_text(*parameters) : ""};
}

// Null when the answer is free.
std::shared_ptr<const Grammar> compile_grammar(const ChatRequest& chat, GrammarCompiler& compiler) {
  GrammarSpec spec = chat.format;
  spec.parallel_calls = chat.parallel_calls;
  const bool forced = calls_forced(chat.tool_choice);
  const bool has_format = spec.content != GrammarSpec::Content::kNone;
  if (!forced && !has_format) return nullptr;
  if (chat.tool_choice.kind != ToolChoice::Kind::kNone) {
    for (const Tool& tool : declared_tools(chat)) {
      const bool wanted = chat.tool_choice.kind != ToolChoice::Kind::kNamed || tool.name == chat.tool_choice.name;
      if (wanted) spec.tools.push_back(grammar_tool(tool));
    }
  }
  return compiler.compile(spec);
}

void add_policies(const ChatRequest& chat, const std::shared_ptr<const Grammar>& grammar, const ParserOptions& parser,
                  const Tokenizer& tokenizer, Request& request) {
  const bool needed = grammar != nullptr || parser.calls || !parser.stops.empty() || chat.thinking_budget >= 0;
  for (int32_t i = 0; i < request.choices; ++i) {
    std::vector<std::shared_ptr<TokenPolicy>> parts;
    if (needed) {
      ChatPolicyOptions options{.parser = parser, .thinking_budget = chat.thinking_budget, .grammar = nullptr};
      if (grammar != nullptr) options.grammar = grammar->make_policy();
      parts.push_back(std::make_shared<ChatPolicy>(tokenizer, std::move(options)));
    }
    if (chat.bad_words != nullptr) parts.push_back(std::make_shared<BadWordsPolicy>(chat.bad_words));
    if (chat.allowed_ids != nullptr) parts.push_back(std::make_shared<AllowedIdsPolicy>(chat.allowed_ids));
    if (auto policy = chain_policies(std::move(parts))) request.policies.push_back(std::move(policy));
  }
}

}  // namespace

std::vector<Tool> declared_tools(const ChatRequest& chat) {
  std::vector<Tool> tools;
  for (const Message& message : chat.messages) {
    const bool shown = message.role == Role::kSystem || message.role == Role::kDeveloper;
    if (shown) tools.insert(tools.end(), message.tools.begin(), message.tools.end());
  }
  tools.insert(tools.end(), chat.tools.begin(), chat.tools.end());
  return tools;
}

void check_tool_choice(const ChatRequest& chat) {
  const bool forced = calls_forced(chat.tool_choice);
  const std::vector<Tool> tools = declared_tools(chat);
  if (forced && tools.empty()) {
    throw ApiError(400, "`tool_choice` needs `tools`: give at least one tool.", "tool_choice");
  }
  if (chat.tool_choice.kind == ToolChoice::Kind::kNamed && find_tool(tools, chat.tool_choice.name) == nullptr) {
    throw ApiError(400, concat("`tool_choice`: there is no tool named \"", chat.tool_choice.name, "\" in `tools`."),
                   "tool_choice");
  }
  if (forced && chat.format.content != GrammarSpec::Content::kNone) {
    throw ApiError(400,
                   "A `tool_choice` that forces a call and a format of the content exclude each other: leave one out.",
                   "tool_choice");
  }
}

Prompt render_chat(ChatRequest& chat, const ServedModel& model) {
  if (has_images(chat.messages)) {
    throw ApiError(400, "Images are not supported by this server: send text only.", "messages");
  }
  if (chat.tool_choice.kind == ToolChoice::Kind::kNone) {
    for (Message& message : chat.messages) message.tools.clear();
  } else {
    attach_tools(chat.messages, std::exchange(chat.tools, {}));
  }
  if (model.schema_in_prompt && chat.shown_format) attach_response_format(chat.messages, *chat.shown_format);
  return render(chat.messages, {.thinking = chat.thinking, .end = chat.end});
}

ChatPlan plan_chat(ChatRequest chat, const ApiContext& context) {
  const ServedModel& model = context.model;
  check_tool_choice(chat);
  Prompt prompt = render_chat(chat, model);
  if (!chat.truncation) check_text_length(prompt.text.size(), model);
  const std::vector<Tool> tools = declared_tools(chat);  // now all are of messages
  ChatPlan plan;
  plan.parser.start = prompt.answer;
  plan.parser.calls = !tools.empty() && chat.tool_choice.kind != ToolChoice::Kind::kNone;
  plan.parser.stops = chat.stops.strings;
  plan.parser.include_stop = chat.stops.include;
  plan.parser.tools = std::make_shared<const std::vector<Tool>>(tools);
  plan.named_call = chat.tool_choice.kind == ToolChoice::Kind::kNamed;
  plan.request = std::make_shared<Request>(chat.sampling);
  Request& request = *plan.request;
  request.prompt = prompt.tokens(*model.tokenizer, model.special_in_user_text);
  truncate_prompt(request.prompt, chat.truncation, chat.max_tokens, model.max_model_len);
  limit_tokens(request, chat.max_tokens, model.default_max_tokens, model.max_model_len);
  if (!request.ignore_eos) {
    const std::vector<int32_t> ends = chat_stop_ids(*model.tokenizer);
    request.stop_ids.insert(request.stop_ids.end(), ends.begin(), ends.end());
  }
  add_policies(chat, compile_grammar(chat, context.grammars), plan.parser, *model.tokenizer, request);
  plan.text = std::move(prompt.text);
  return plan;
}

}  // namespace folio
