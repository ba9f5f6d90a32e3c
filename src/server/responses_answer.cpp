#include "server/responses_answer.h"

#include "base/error.h"
#include "server/event_stream.h"
#include "server/responses_items.h"
#include "server/usage_json.h"

namespace folio {
namespace {

std::string_view part_event(bool reasoning, bool begins) {
  if (reasoning) return begins ? "response.reasoning_part.added" : "response.reasoning_part.done";
  return begins ? "response.content_part.added" : "response.content_part.done";
}

}  // namespace

void ResponsesAnswer::send(std::string_view type, ReplyJson data, std::string& out) {
  ReplyJson event = {{"type", type}, {"sequence_number", sequence_++}};
  event.update(data);
  append_event(type, dump(event), out);
}

ReplyJson ResponsesAnswer::response(std::string_view status, bool with_output) const {
  ReplyJson output = ReplyJson::array();
  if (with_output) {
    for (const Item& item : items_) output.push_back(item_json(item, true));
  }
  ReplyJson response = {{"id", options_.id},
                        {"object", "response"},
                        {"created_at", created_},
                        {"status", status},
                        {"model", options_.model},
                        {"output", std::move(output)},
                        {"usage", with_output ? responses_usage(usage_) : ReplyJson(nullptr)},
                        {"error", nullptr},
                        {"incomplete_details", nullptr}};
  if (status == "incomplete") response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  response.update(options_.settings);
  return response;
}

void ResponsesAnswer::begin(std::string& out) {
  send("response.created", {{"response", response("in_progress", false)}}, out);
  send("response.in_progress", {{"response", response("in_progress", false)}}, out);
}

void ResponsesAnswer::on_token(int32_t, const TokenNews& token, std::string& out) {
  turn_.push(token, deltas_);
  take(deltas_, out);
}

void ResponsesAnswer::on_finish(int32_t, FinishReason reason, const Usage& usage, std::string& out) {
  reason_ = reason;
  turn_.finish(reason, deltas_);
  take(deltas_, out);
  close(!cut_off(), out);
  usage_.add(usage, true);
  usage_.reasoning_tokens = turn_.reasoning_tokens();
}

void ResponsesAnswer::take(std::vector<Delta>& deltas, std::string& out) {
  for (const Delta& delta : deltas) {
    switch (delta.kind) {
      case Delta::Kind::kReasoning:
        open(Kind::kReasoning, "", out);
        add_text(delta.text, out);
        break;
      case Delta::Kind::kContent:
        open(Kind::kMessage, "", out);
        add_text(delta.text, out);
        break;
      case Delta::Kind::kCall:
        close(true, out);
        open(options_.custom_tools.contains(delta.text) ? Kind::kCustomCall : Kind::kCall, delta.text, out);
        break;
      case Delta::Kind::kArguments:
        add_text(delta.text, out);
        break;
      case Delta::Kind::kCallEnd:
        close(true, out);
        break;
    }
  }
  deltas.clear();
}

// Begins an item, unless one of its kind is open.
void ResponsesAnswer::open(Kind kind, const std::string& name, std::string& out) {
  if (open_ && items_.back().kind == kind) return;
  close(true, out);
  open_ = true;
  const bool text = kind == Kind::kReasoning || kind == Kind::kMessage;
  const std::string_view prefix = kind == Kind::kReasoning ? "rs_" : kind == Kind::kMessage ? "msg_" : "fc_";
  items_.push_back(
      {.kind = kind, .id = random_id(prefix), .call_id = text ? "" : random_id("call_"), .name = name, .text = ""});
  if (!options_.stream) return;
  const Item& item = items_.back();
  const size_t index = items_.size() - 1;
  send("response.output_item.added", {{"output_index", index}, {"item", item_json(item, false)}}, out);
  if (!text) return;
  send(part_event(kind == Kind::kReasoning, true),
       {{"item_id", item.id}, {"output_index", index}, {"content_index", 0}, {"part", part_json(item, "")}}, out);
}

void ResponsesAnswer::add_text(const std::string& text, std::string& out) {
  Item& item = items_.back();
  item.text += text;
  if (!options_.stream || item.kind == Kind::kCustomCall) return;  // its text is known at its end
  const size_t index = items_.size() - 1;
  if (item.kind == Kind::kCall) {
    send("response.function_call_arguments.delta", {{"item_id", item.id}, {"output_index", index}, {"delta", text}},
         out);
    return;
  }
  send(item.kind == Kind::kReasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
       {{"item_id", item.id}, {"output_index", index}, {"content_index", 0}, {"delta", text}}, out);
}

void ResponsesAnswer::close(bool complete, std::string& out) {
  if (!open_) return;
  open_ = false;
  Item& item = items_.back();
  item.complete = complete;
  if (!options_.stream) return;
  const size_t index = items_.size() - 1;
  ReplyJson where = {{"item_id", item.id}, {"output_index", index}};
  if (item.kind == Kind::kCall) {
    where["arguments"] = item.text;
    send("response.function_call_arguments.done", where, out);
  } else if (item.kind == Kind::kCustomCall) {
    where["input"] = custom_input(item);
    send("response.custom_tool_call_input.done", where, out);
  } else {
    const bool reasoning = item.kind == Kind::kReasoning;
    where["content_index"] = 0;
    ReplyJson part = where;
    where["text"] = item.text;
    send(reasoning ? "response.reasoning_text.done" : "response.output_text.done", where, out);
    part["part"] = part_json(item, item.text);
    send(part_event(reasoning, false), part, out);
  }
  send("response.output_item.done", {{"output_index", index}, {"item", item_json(item, true)}}, out);
}

ReplyJson ResponsesAnswer::part_json(const Item& item, const std::string& text) const {
  if (item.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"}, {"text", text}, {"annotations", ReplyJson::array()}};
}

// The text that a custom tool is called with; as it came when it was cut off.
std::string ResponsesAnswer::custom_input(const Item& item) const {
  const ReplyJson arguments = ReplyJson::parse(item.text, nullptr, false);
  if (!arguments.is_object() || !arguments.contains(kFreeText)) return item.text;
  const ReplyJson& text = arguments[kFreeText];
  return text.is_string() ? text.get<std::string>() : dump(text);
}

// `begun`: with what it has so far; else as it begins.
ReplyJson ResponsesAnswer::item_json(const Item& item, bool begun) const {
  const std::string_view status = !begun ? "in_progress" : item.complete ? "completed" : "incomplete";
  ReplyJson content = ReplyJson::array();
  if (begun && item.call_id.empty()) content.push_back(part_json(item, item.text));
  if (item.kind == Kind::kReasoning) {
    return {{"type", "reasoning"},
            {"id", item.id},
            {"summary", ReplyJson::array()},
            {"content", content},
            {"status", status}};
  }
  if (item.kind == Kind::kMessage) {
    return {{"type", "message"}, {"id", item.id}, {"role", "assistant"}, {"status", status}, {"content", content}};
  }
  const size_t colons = item.name.find("::");
  ReplyJson call = {{"type", item.kind == Kind::kCall ? "function_call" : "custom_tool_call"},
                    {"id", item.id},
                    {"call_id", item.call_id},
                    {"name", colons == std::string::npos ? item.name : item.name.substr(colons + 2)}};
  if (colons != std::string::npos) call["namespace"] = item.name.substr(0, colons);
  if (item.kind == Kind::kCall) {
    call["arguments"] = begun ? item.text : "";
  } else {
    call["input"] = begun ? custom_input(item) : "";
  }
  call["status"] = status;
  return call;
}

void ResponsesAnswer::end(std::string& out) {
  const std::string_view status = cut_off() ? "incomplete" : "completed";
  const ReplyJson whole = response(status, true);
  keep(dump(whole));
  send(cut_off() ? "response.incomplete" : "response.completed", {{"response", whole}}, out);
}

std::string ResponsesAnswer::body() {
  std::string whole = dump(response(cut_off() ? "incomplete" : "completed", true));
  keep(whole);
  return whole;
}

// For requests that go on from here: the conversation with this answer as its last turn.
void ResponsesAnswer::keep(const std::string& body) const {
  if (options_.store == nullptr) return;
  StoredResponse stored{.messages = options_.messages, .body = body};
  Message turn = text_message(Role::kAssistant, "");
  for (const Item& item : items_) {
    stored.items.push_back(Json::parse(dump(item_json(item, true))));
    if (item.kind == Kind::kReasoning) {
      turn.reasoning += item.text;
    } else if (item.kind == Kind::kMessage) {
      turn.content.front().text += item.text;
    } else {
      turn.tool_calls.push_back(
          {.id = item.call_id, .name = item.name, .arguments = normalised_arguments(Json(item.text))});
    }
  }
  stored.messages.push_back(std::move(turn));
  options_.store->put(options_.id, std::move(stored));
}

void ResponsesAnswer::fail(const ApiError& error, std::string& out) {
  ReplyJson failed = response("failed", false);
  failed["error"] = {{"code", "server_error"}, {"message", error.what()}};
  send("response.failed", {{"response", failed}}, out);
}

}  // namespace folio
