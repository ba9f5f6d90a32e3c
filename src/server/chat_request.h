// A chat as all chat APIs mean it, and what it asks of the engine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/render.h"
#include "protocol/stream_parser.h"
#include "server/routes.h"
#include "server/sampling_fields.h"

namespace folio {

struct ToolChoice {
  enum class Kind : uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // kNamed
};

struct ChatRequest {
  std::vector<Message> messages;
  std::vector<Tool> tools;  // beside those of its messages
  ToolChoice tool_choice;
  bool parallel_calls = true;
  Thinking thinking;
  PromptEnd end = PromptEnd::kGenerate;
  GrammarSpec format;                // what the content must look like; its tools are not looked at
  std::optional<Json> shown_format;  // schema for the prompt
  StopFields stops;
  std::shared_ptr<const std::vector<uint64_t>> allowed_ids;
  std::shared_ptr<const std::vector<std::vector<int32_t>>> bad_words;  // null: none
  std::optional<int64_t> truncation;                                   // of the prompt, see truncate_prompt()
  int64_t thinking_budget = -1;                                        // tokens; -1: no limit
  std::optional<int64_t> max_tokens;
  Request sampling;  // everything of a request but prompt, limits, policies and sink
};

// A chat, rendered.
struct ChatPlan {
  std::string text;  // of the prompt
  std::shared_ptr<Request> request;
  ParserOptions parser;  // of every choice's answer
  bool named_call = false;
};

// The tools that may be called: those of the request and of its messages.
std::vector<Tool> declared_tools(const ChatRequest& chat);
// Throws ApiError(400) for contradictions between tools, tool choice and format.
void check_tool_choice(const ChatRequest& chat);
// The prompt of a chat. Throws ApiError(400), also for images.
Prompt render_chat(ChatRequest& chat, const ServedModel& model);
// Renders, tokenises, limits, compiles the grammar. Throws ApiError or Error.
ChatPlan plan_chat(ChatRequest chat, const ApiContext& context);

}  // namespace folio
