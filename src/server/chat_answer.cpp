#include "server/chat_answer.h"

#include <algorithm>

#include "base/error.h"
#include "server/event_stream.h"
#include "server/token_text.h"
#include "server/usage_json.h"

namespace folio {
namespace {

constexpr std::string_view kCompletion = "chat.completion";
constexpr std::string_view kChunk = "chat.completion.chunk";

}  // namespace

ChatAnswer::ChatAnswer(const Tokenizer& tokenizer, ParserOptions parser, int32_t choices, ChatAnswerOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), created_(unix_seconds()) {
  for (int32_t i = 0; i < choices; ++i) {
    choices_.emplace_back(tokenizer_, parser);
    if (!options_.echo.empty()) choices_.back().answer.content = options_.echo;
  }
  head_ = concat("{\"id\":", json_quote(options_.id), ",\"object\":\"", kChunk, "\",\"created\":", created_,
                 ",\"model\":", json_quote(options_.model));
}

void ChatAnswer::begin(std::string& out) {
  for (int32_t i = 0; i < std::ssize(choices_); ++i) {
    send(i, R"({"role":"assistant","content":""})", "", out);
    if (!options_.echo.empty()) send_delta(i, {.kind = Delta::Kind::kContent, .text = options_.echo}, out);
  }
}

void ChatAnswer::on_token(int32_t index, const TokenNews& token, std::string& out) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (options_.logprobs) {
    choice.logprobs.push_back(chat_logprob(tokenizer_, token, options_.top_logprobs, options_.ids_as_tokens));
  }
  if (options_.return_ids) choice.ids.push_back(token.id);
  choice.turn.push(token, deltas_);
  take(index, deltas_, out);
}

void ChatAnswer::on_finish(int32_t index, FinishReason reason, const Usage& usage, std::string& out) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const bool unclosed = choice.turn.reasoning();
  choice.turn.finish(reason, deltas_);
  take(index, deltas_, out);
  if (unclosed && options_.unclosed_think_content && reason == FinishReason::kStop) {
    deltas_.push_back({.kind = Delta::Kind::kContent, .text = std::exchange(choice.answer.reasoning, {})});
    take(index, deltas_, out);
  }
  usage_.add(usage, index == 0);
  usage_.reasoning_tokens += choice.turn.reasoning_tokens();
  if (!options_.stream) return;
  send(index, "{}", choice.turn.finish_reason(options_.named_call), out);
}

// Keeps what the deltas say and, in a stream, sends it.
void ChatAnswer::take(int32_t index, std::vector<Delta>& deltas, std::string& out) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  for (const Delta& delta : deltas) {
    if (delta.kind == Delta::Kind::kCall) choice.call_ids.push_back(random_id("call_"));
    if (options_.stream) send_delta(index, delta, out);
  }
  if (!options_.stream || options_.unclosed_think_content) choice.answer.add(deltas);
  deltas.clear();
}

void ChatAnswer::send_delta(int32_t index, const Delta& delta, std::string& out) {
  std::string text;
  switch (delta.kind) {
    case Delta::Kind::kReasoning:
      if (!options_.include_reasoning) return;
      text = "{\"reasoning_content\":";
      append_quoted(delta.text, text);
      if (options_.reasoning_alias) {
        text += ",\"reasoning\":";
        append_quoted(delta.text, text);
      }
      text += "}";
      break;
    case Delta::Kind::kContent:
      text = "{\"content\":";
      append_quoted(delta.text, text);
      text += "}";
      break;
    case Delta::Kind::kCall:
      text = "{\"tool_calls\":[{\"index\":" + std::to_string(delta.call) + ",\"id\":";
      append_quoted(choices_[static_cast<size_t>(index)].call_ids.back(), text);
      text += ",\"type\":\"function\",\"function\":{\"name\":";
      append_quoted(delta.text, text);
      text += ",\"arguments\":\"\"}}]}";
      break;
    case Delta::Kind::kArguments:
      text = "{\"tool_calls\":[{\"index\":" + std::to_string(delta.call) + ",\"function\":{\"arguments\":";
      append_quoted(delta.text, text);
      text += "}}]}";
      break;
    case Delta::Kind::kCallEnd:
      return;
  }
  send(index, text, "", out);
}

void ChatAnswer::append_usage(std::string& out) const {
  if (options_.continuous_usage) {
    TotalUsage running;
    running.prompt_tokens = std::ssize(options_.prompt);
    for (const Choice& choice : choices_) {
      running.completion_tokens += choice.turn.tokens();
      running.reasoning_tokens += choice.turn.reasoning_tokens();
    }
    out += ",\"usage\":" + dump(openai_usage(running));
  } else if (options_.include_usage) {
    out += ",\"usage\":null";
  }
}

// Written by hand: this is what every token costs.
void ChatAnswer::send(int32_t index, std::string_view delta, std::string_view reason, std::string& out) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  begin_event(out);
  out.append(head_).append(",\"choices\":[{\"index\":").append(std::to_string(index));
  out.append(",\"delta\":").append(delta).append(",\"logprobs\":");
  if (choice.logprobs.empty()) {
    out += "null";
  } else {
    out += "{\"content\":" + dump(std::exchange(choice.logprobs, ReplyJson::array())) + "}";
  }
  out += ",\"finish_reason\":";
  if (reason.empty()) {
    out += "null";
  } else {
    append_quoted(reason, out);
    out += ",\"stop_reason\":" + dump(stop_reason(choice));
  }
  if (!choice.ids.empty()) out += ",\"token_ids\":" + dump(std::exchange(choice.ids, ReplyJson::array()));
  out += "}]";
  append_usage(out);
  out += "}";
  end_event(out);
}

void ChatAnswer::end(std::string& out) {
  if (options_.include_usage) {
    append_event(concat(head_, ",\"choices\":[],\"usage\":", dump(openai_usage(usage_)), "}"), out);
  }
  out += kDoneEvent;
}

// What the client asked to stop at: a string or one of its ids.
ReplyJson ChatAnswer::stop_reason(const Choice& choice) const {
  if (const std::string* stop = choice.turn.stop()) return *stop;
  const bool asked =
      std::find(options_.stop_ids.begin(), options_.stop_ids.end(), choice.turn.last_id()) != options_.stop_ids.end();
  return asked ? ReplyJson(choice.turn.last_id()) : ReplyJson(nullptr);
}

ReplyJson ChatAnswer::message_json(const Choice& choice) const {
  const ParsedAnswer& answer = choice.answer;
  ReplyJson message = {{"role", "assistant"}};
  const bool silent = answer.content.empty() && !answer.calls.empty();
  message["content"] = silent ? ReplyJson(nullptr) : ReplyJson(answer.content);
  if (!answer.reasoning.empty() && options_.include_reasoning) {
    message["reasoning_content"] = answer.reasoning;
    message["reasoning"] = answer.reasoning;
  }
  if (answer.calls.empty()) return message;
  ReplyJson calls = ReplyJson::array();
  for (size_t i = 0; i < answer.calls.size(); ++i) {
    calls.push_back({{"id", choice.call_ids[i]},
                     {"type", "function"},
                     {"function", {{"name", answer.calls[i].name}, {"arguments", answer.calls[i].arguments}}}});
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

std::string ChatAnswer::body() {
  ReplyJson choices = ReplyJson::array();
  for (int32_t i = 0; i < std::ssize(choices_); ++i) {
    Choice& choice = choices_[static_cast<size_t>(i)];
    ReplyJson json = {{"index", i},
                      {"message", message_json(choice)},
                      {"logprobs", nullptr},
                      {"finish_reason", finish_reason(i)},
                      {"stop_reason", stop_reason(choice)}};
    if (options_.logprobs) json["logprobs"] = {{"content", std::move(choice.logprobs)}};
    if (options_.return_ids) json["token_ids"] = std::move(choice.ids);
    choices.push_back(std::move(json));
  }
  ReplyJson reply = {{"id", options_.id},
                     {"object", kCompletion},
                     {"created", created_},
                     {"model", options_.model},
                     {"choices", std::move(choices)},
                     {"usage", openai_usage(usage_)},
                     {"system_fingerprint", nullptr}};
  if (options_.prompt_logprobs) {
    reply["prompt_logprobs"] = prompt_logprobs(tokenizer_, prompt_news_, *options_.prompt_logprobs);
  }
  if (options_.return_ids) reply["prompt_token_ids"] = options_.prompt;
  return dump(reply);
}

void ChatAnswer::fail(const ApiError& error, std::string& out) {
  append_event(error_body(error, ApiStyle::kOpenAi), out);
  out += kDoneEvent;
}

}  // namespace folio
