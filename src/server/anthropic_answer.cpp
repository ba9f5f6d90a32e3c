#include "server/anthropic_answer.h"

#include "base/error.h"
#include "server/event_stream.h"
#include "server/usage_json.h"

namespace folio {

void AnthropicAnswer::send(std::string_view type, ReplyJson data, std::string& out) const {
  ReplyJson event = {{"type", type}};
  event.update(data);
  append_event(type, dump(event), out);
}

ReplyJson AnthropicAnswer::message(ReplyJson content, const ReplyJson& reason, const ReplyJson& usage) const {
  return {{"id", options_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", options_.model},
          {"content", std::move(content)},
          {"stop_reason", reason},
          {"stop_sequence", reason.is_null() ? ReplyJson(nullptr) : stop_sequence()},
          {"usage", usage}};
}

void AnthropicAnswer::begin(std::string& out) {
  TotalUsage usage;
  usage.prompt_tokens = options_.prompt_tokens;
  usage.cached_tokens = cached_tokens_;
  send("message_start", {{"message", message(ReplyJson::array(), nullptr, anthropic_usage(usage))}}, out);
}

void AnthropicAnswer::on_token(int32_t, const TokenNews& token, std::string& out) {
  turn_.push(token, deltas_);
  take(deltas_, out);
}

void AnthropicAnswer::on_finish(int32_t, FinishReason reason, const Usage& usage, std::string& out) {
  turn_.finish(reason, deltas_);
  take(deltas_, out);
  usage_.add(usage, true);
  if (options_.stream) close(out);
}

void AnthropicAnswer::take(std::vector<Delta>& deltas, std::string& out) {
  answer_.add(deltas);
  for (const Delta& delta : deltas) {
    if (delta.kind == Delta::Kind::kCall) call_ids_.push_back(random_id("toolu_"));
    if (!options_.stream) continue;
    switch (delta.kind) {
      case Delta::Kind::kReasoning:
        open(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
        send_delta("thinking_delta", "thinking", delta.text, out);
        break;
      case Delta::Kind::kContent:
        open(Block::kText, {{"type", "text"}, {"text", ""}}, out);
        send_delta("text_delta", "text", delta.text, out);
        break;
      case Delta::Kind::kCall:
        close(out);
        open(Block::kToolUse,
             {{"type", "tool_use"}, {"id", call_ids_.back()}, {"name", delta.text}, {"input", ReplyJson::object()}},
             out);
        break;
      case Delta::Kind::kArguments:
        send_delta("input_json_delta", "partial_json", delta.text, out);
        break;
      case Delta::Kind::kCallEnd:
        close(out);
        break;
    }
  }
  deltas.clear();
}

// Begins a block, unless one of its kind is open.
void AnthropicAnswer::open(Block block, const ReplyJson& content, std::string& out) {
  if (open_ == block) return;
  close(out);
  open_ = block;
  ++index_;
  send("content_block_start", {{"index", index_}, {"content_block", content}}, out);
}

void AnthropicAnswer::close(std::string& out) {
  if (!open_) return;
  if (open_ == Block::kThinking) send_delta("signature_delta", "signature", "", out);
  send("content_block_stop", {{"index", index_}}, out);
  open_.reset();
}

void AnthropicAnswer::send_delta(std::string_view type, std::string_view member, const std::string& text,
                                 std::string& out) {
  append_event("content_block_delta",
               concat("{\"type\":\"content_block_delta\",\"index\":", index_, ",\"delta\":{\"type\":\"", type, "\",\"",
                      member, "\":", json_quote(text), "}}"),
               out);
}

std::string AnthropicAnswer::stop_reason() const {
  if (turn_.stop() != nullptr) return "stop_sequence";
  const std::string reason = turn_.finish_reason(false);
  if (reason == "tool_calls") return "tool_use";
  return reason == "length" ? "max_tokens" : "end_turn";
}

ReplyJson AnthropicAnswer::stop_sequence() const {
  return turn_.stop() == nullptr ? ReplyJson(nullptr) : ReplyJson(*turn_.stop());
}

void AnthropicAnswer::end(std::string& out) {
  send("message_delta",
       {{"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
        {"usage", anthropic_usage(usage_)}},
       out);
  send("message_stop", ReplyJson::object(), out);
}

std::string AnthropicAnswer::body() {
  ReplyJson content = ReplyJson::array();
  if (!answer_.reasoning.empty()) {
    content.push_back({{"type", "thinking"}, {"thinking", answer_.reasoning}, {"signature", ""}});
  }
  if (!answer_.content.empty()) content.push_back({{"type", "text"}, {"text", answer_.content}});
  for (size_t i = 0; i < answer_.calls.size(); ++i) {
    const ReplyJson input = ReplyJson::parse(answer_.calls[i].arguments, nullptr, false);
    if (!input.is_object()) continue;  // cut off: the stop reason says so
    content.push_back({{"type", "tool_use"}, {"id", call_ids_[i]}, {"name", answer_.calls[i].name}, {"input", input}});
  }
  return dump(message(std::move(content), stop_reason(), anthropic_usage(usage_)));
}

void AnthropicAnswer::fail(const ApiError& error, std::string& out) {
  append_event("error", error_body(error, ApiStyle::kAnthropic), out);
}

}  // namespace folio
