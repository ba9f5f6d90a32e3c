#include "protocol/render.h"

#include <algorithm>
#include <map>

#include "protocol/dsml.h"
#include "protocol/field_error.h"

namespace folio {
namespace {

constexpr std::string_view kBegin = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEnd = "<｜end▁of▁sentence｜>";
constexpr std::string_view kSystem = "<｜System｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kReminder = "<｜latest_reminder｜>";
constexpr std::string_view kImage = "<｜deepseek_image｜>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";

constexpr std::string_view kToolsBefore =
    "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by writing "
    "a \"<｜DSML｜ calls>\" block like the following:\n\n"
    "<｜DSML｜ calls>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜ parameter>\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, "
    "arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";
constexpr std::string_view kToolsAfter =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";
constexpr std::string_view kResponseFormat =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

bool opens_turn(const std::vector<Message>& messages, size_t i) {
  const Role role = messages[i].role;
  return role == Role::kUser || role == Role::kDeveloper || (role == Role::kSystem && i > 0);
}

// The last message that opens a turn; -1 when none does.
ptrdiff_t last_opener(const std::vector<Message>& messages) {
  for (size_t i = messages.size(); i > 0; --i) {
    if (opens_turn(messages, i - 1)) return static_cast<ptrdiff_t>(i) - 1;
  }
  return -1;
}

// Tool results become blocks of user turns, and user messages that follow each other one turn.
std::vector<Message> merge_user_turns(const std::vector<Message>& messages) {
  std::vector<Message> merged;
  for (const Message& message : messages) {
    Message* before = !merged.empty() && merged.back().role == Role::kUser ? &merged.back() : nullptr;
    if (message.role == Role::kTool) {
      if (before == nullptr) before = &merged.emplace_back();
      before->content.push_back(
          {.kind = ContentPart::Kind::kToolResult, .call_id = message.tool_call_id, .parts = message.content});
    } else if (message.role == Role::kUser && before != nullptr && before->task.empty()) {
      before->content.insert(before->content.end(), message.content.begin(), message.content.end());
    } else {
      merged.push_back(message);
    }
  }
  return merged;
}

using CallOrder = std::map<std::string, size_t, std::less<>>;

void sort_results(std::vector<ContentPart>& content, const CallOrder& order) {
  std::vector<size_t> places;
  std::vector<ContentPart> results;
  for (size_t i = 0; i < content.size(); ++i) {
    if (content[i].kind != ContentPart::Kind::kToolResult) continue;
    places.push_back(i);
    results.push_back(content[i]);
  }
  const auto position = [&](const ContentPart& result) {
    const auto found = order.find(result.call_id);
    return found != order.end() ? found->second : 0;
  };
  std::stable_sort(results.begin(), results.end(),
                   [&](const ContentPart& a, const ContentPart& b) { return position(a) < position(b); });
  for (size_t i = 0; i < places.size(); ++i) content[places[i]] = std::move(results[i]);
}

// Results of one turn stand in the order of the calls that they answer.
void sort_tool_results(std::vector<Message>& messages) {
  CallOrder order;
  for (Message& message : messages) {
    if (message.role == Role::kAssistant && !message.tool_calls.empty()) {
      order.clear();
      for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        if (!message.tool_calls[i].id.empty()) order[message.tool_calls[i].id] = i;
      }
    } else if (message.role == Role::kUser) {
      sort_results(message.content, order);
    }
  }
}

void drop_old_reasoning(std::vector<Message>& messages) {
  const auto last = std::max<ptrdiff_t>(last_opener(messages), 0);
  for (auto message = messages.begin(); message != messages.begin() + last; ++message) message->reasoning.clear();
  const auto is_dropped = [](const Message& message) { return message.role == Role::kDeveloper; };
  messages.erase(std::remove_if(messages.begin(), messages.begin() + last, is_dropped), messages.begin() + last);
}

class Renderer {
 public:
  Renderer(std::vector<Message> messages, const RenderOptions& options, bool drop)
      : messages_(std::move(messages)),
        thinking_(options.thinking),
        end_(options.end),
        drop_(drop),
        last_(last_opener(messages_)) {}

  Prompt render() {
    write(kBegin);
    if (thinking_.on || messages_[0].role == Role::kSystem) write(kSystem);
    if (thinking_.on) {
      write(concat("Reasoning Effort: ", thinking_.effort,
                   " (range 1-100, the higher the value, the more thorough the reasoning)\n\n"));
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      header_at_ = kNone;
      render_message(i);
      render_transition(i);
    }
    finish();
    return std::move(prompt_);
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  void write(std::string_view text) { prompt_.text += text; }

  void write_untrusted(std::string_view text) {
    if (text.empty()) return;
    const size_t begin = prompt_.text.size();
    prompt_.text += text;
    prompt_.untrusted.push_back({begin, prompt_.text.size()});
  }

  void write_header(bool think) {
    header_at_ = prompt_.text.size();
    write(kAssistant);
    write(think ? kThink : kEndThink);
    prompt_.answer = think ? AnswerStart::kReasoning : AnswerStart::kContent;
  }

  void write_parts(const std::vector<ContentPart>& parts) {
    bool first = true;
    for (const ContentPart& part : parts) {
      if (!first) write("\n\n");
      first = false;
      write_part(part);
    }
  }

  void write_part(const ContentPart& part) {
    switch (part.kind) {
      case ContentPart::Kind::kText:
        write_untrusted(part.text);
        break;
      case ContentPart::Kind::kImage:
        write(kImage);
        prompt_.images.push_back(part.image);
        break;
      case ContentPart::Kind::kToolResult:
        write("<tool_result>");
        write_parts(part.parts);
        write("</tool_result>");
        break;
      case ContentPart::Kind::kUnsupported:
        write("[Unsupported ");
        write_untrusted(part.text);
        write("]");
        break;
    }
  }

  void write_tools(const Message& message) {
    if (!message.tools.empty()) {
      write("\n\n");
      write(kToolsBefore);
      for (size_t i = 0; i < message.tools.size(); ++i) {
        if (i > 0) write("\n");
        write_untrusted(python_json(message.tools[i].function));
      }
      write(kToolsAfter);
    }
    if (message.response_format) {
      write("\n\n");
      write(kResponseFormat);
      write_untrusted(python_json(*message.response_format));
    }
  }

  void write_argument(const Json::Member& argument) {
    const std::string* text = argument.value.string();
    write("<｜DSML｜ parameter name=\"");
    write_untrusted(argument.key);
    write(text != nullptr ? "\" string=\"true\">" : "\" string=\"false\">");
    write_untrusted(text != nullptr ? *text : python_json(argument.value));
    write("</｜DSML｜ parameter>");
  }

  void write_calls(const std::vector<ToolCall>& calls) {
    write("\n\n<｜DSML｜ calls>\n");
    for (const ToolCall& call : calls) {
      write("<｜DSML｜ invoke name=\"");
      write_untrusted(call.name);
      write("\">\n");
      const Json::Object& arguments = *call.arguments.object();
      for (size_t i = 0; i < arguments.size(); ++i) {
        if (i > 0) write("\n");
        write_argument(arguments[i]);
      }
      write("\n</｜DSML｜ invoke>\n");
    }
    write("</｜DSML｜ calls>");
  }

  void render_message(size_t i) {
    const Message& message = messages_[i];
    switch (message.role) {
      case Role::kSystem:
        if (i > 0) write(kSystem);
        write_parts(message.content);
        write_tools(message);
        break;
      case Role::kDeveloper:
        write(kUser);
        write_parts(message.content);
        write_tools(message);
        break;
      case Role::kUser:
        write(kUser);
        write_parts(message.content);
        break;
      case Role::kLatestReminder:
        write(kReminder);
        write_parts(message.content);
        break;
      case Role::kAssistant:
        render_assistant(i);
        break;
      case Role::kTool:
        FOLIO_CHECK(false, "tool messages are parts of user turns by now");
    }
  }

  // The last message goes on rather than being finished.
  bool is_continued(size_t i) const {
    if (i + 1 < messages_.size() || messages_[i].role != Role::kAssistant) return false;
    return end_ == PromptEnd::kContinue || (end_ == PromptEnd::kGenerate && messages_[i].open);
  }

  void render_assistant(size_t i) {
    const Message& message = messages_[i];
    const bool continued = is_continued(i);
    const bool reasons =
        thinking_.on && !(i > 0 && !messages_[i - 1].task.empty()) && (!drop_ || static_cast<ptrdiff_t>(i) > last_);
    prompt_.answer = AnswerStart::kContent;
    if (reasons) {
      write_untrusted(message.reasoning);
      const size_t answer_at = prompt_.text.size();
      write(kEndThink);
      write_parts(message.content);
      if (continued && prompt_.text.size() == answer_at + kEndThink.size() && message.tool_calls.empty()) {
        prompt_.text.resize(answer_at);  // it has not begun to answer
        prompt_.answer = AnswerStart::kReasoning;
      }
    } else {
      write_parts(message.content);
    }
    if (!message.tool_calls.empty()) write_calls(message.tool_calls);
    if (!continued && !message.open) write(kEnd);
  }

  // What leads from message i to the next, which the next does not write itself.
  void render_transition(size_t i) {
    if (i + 1 < messages_.size()) {
      const Role next = messages_[i + 1].role;
      if (next != Role::kAssistant && next != Role::kLatestReminder) return;
    }
    const std::string& task = messages_[i].task;
    if (!task.empty()) {
      if (task == "action") {
        write_header(thinking_.on);
        header_at_ = kNone;
      }
      prompt_.answer = AnswerStart::kContent;
      write(concat("<｜", task, "｜>"));
    } else if (opens_turn(messages_, i)) {
      write_header(thinking_.on && (!drop_ || static_cast<ptrdiff_t>(i) >= last_));
    }
  }

  void finish() {
    const Message& message = messages_.back();
    if (end_ == PromptEnd::kNoHeader && header_at_ != kNone) {
      prompt_.text.resize(header_at_);
      prompt_.answer = AnswerStart::kContent;
    }
    const bool wants_header = end_ == PromptEnd::kGenerate && header_at_ == kNone && message.task.empty();
    if (wants_header && !is_continued(messages_.size() - 1)) write_header(thinking_.on);
  }

  const std::vector<Message> messages_;
  const Thinking thinking_;
  const PromptEnd end_;
  const bool drop_;
  const ptrdiff_t last_;
  Prompt prompt_;
  size_t header_at_ = kNone;  // of the header behind the current message
};

}  // namespace

std::vector<int32_t> Prompt::tokens(const Tokenizer& tokenizer, bool special_in_user_text) const {
  return special_in_user_text ? tokenizer.encode(text) : tokenizer.encode(text, untrusted);
}

Prompt render(const std::vector<Message>& messages, const RenderOptions& options) {
  if (messages.empty()) fail_field("messages", "must not be empty");
  if (options.end == PromptEnd::kContinue && messages.back().role != Role::kAssistant) {
    fail_field("messages", "the last one must be the assistant's to be continued");
  }
  for (const Message& message : messages) {
    if (!message.task.empty()) check_task(message.task, "task");  // it becomes a special token
  }
  std::vector<Message> turns = merge_user_turns(messages);
  sort_tool_results(turns);
  const bool has_tools =
      std::any_of(turns.begin(), turns.end(), [](const Message& message) { return !message.tools.empty(); });
  const bool drop = options.thinking.drop_reasoning && !has_tools;
  if (options.thinking.on && drop) drop_old_reasoning(turns);
  return Renderer(std::move(turns), options, drop).render();
}

std::string fill_in_the_middle(const std::string& prefix, const std::string& suffix) {
  return concat(kBegin, "<｜fim▁begin｜>", prefix, "<｜fim▁hole｜>", suffix, "<｜fim▁end｜>");
}

}  // namespace folio
