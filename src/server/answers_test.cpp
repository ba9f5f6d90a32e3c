// Replies against the vectors of tests/vectors/api: same events with the same members; ids, times and how a text is cut
// into deltas are free.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "server/anthropic_answer.h"
#include "server/chat_answer.h"
#include "server/completion_answer.h"
#include "server/responses_answer.h"
#include "server/test_util.h"
#include "server/usage_json.h"
#include "server/vectors_test_util.h"

namespace folio {
namespace {

// Ids by the order in which they appear, times as 0, and what Folio alone sends left out.
ReplyJson normalised(const ReplyJson& value, std::vector<std::string>& ids) {
  if (value.is_array()) {
    ReplyJson out = ReplyJson::array();
    for (const auto& item : value) out.push_back(normalised(item, ids));
    return out;
  }
  if (!value.is_object()) return value;
  ReplyJson out = ReplyJson::object();
  for (const auto& [key, member] : value.items()) {
    if (key == "approximate_cached_tokens" || key == "reasoning") continue;
    if (key == "created" || key == "created_at") {
      out[key] = 0;
    } else if (key == "id" || key == "item_id" || key == "call_id") {
      const auto known = std::find(ids.begin(), ids.end(), member.get<std::string>());
      if (known == ids.end()) ids.push_back(member);
      out[key] = std::find(ids.begin(), ids.end(), member.get<std::string>()) - ids.begin();
    } else {
      out[key] = normalised(member, ids);
    }
  }
  return out;
}

// The only member of a delta that is a text; null where it has none.
std::string* delta_text(ReplyJson& event) {
  ReplyJson* delta = event.contains("delta") ? &event["delta"] : nullptr;
  if (event.contains("choices") && !event["choices"].empty()) delta = &event["choices"][0]["delta"];
  if (delta == nullptr) return nullptr;
  if (delta->is_string()) return delta->get_ptr<std::string*>();
  if (delta->contains("role")) return nullptr;
  for (const char* key : {"content", "reasoning_content", "text", "thinking", "partial_json"}) {
    if (delta->contains(key)) return (*delta)[key].get_ptr<std::string*>();
  }
  if (!delta->contains("tool_calls") || (*delta)["tool_calls"][0].contains("id")) return nullptr;
  return (*delta)["tool_calls"][0]["function"]["arguments"].get_ptr<std::string*>();
}

std::string keys_without_text(ReplyJson event) {
  if (std::string* text = delta_text(event)) text->clear();
  event.erase("sequence_number");
  return event.dump();
}

// A stream as a list of events in which neighbours that differ in their text alone are one.
std::vector<ReplyJson> events_of(const std::string& stream) {
  std::vector<ReplyJson> events;
  std::vector<std::string> ids;
  for (const auto& [name, data] : split_events(stream)) {
    ReplyJson event = data == "[DONE]" ? ReplyJson(data) : normalised(ReplyJson::parse(data), ids);
    if (!name.empty()) {
      EXPECT_EQ(event["type"], name);
    }
    if (event.is_object()) event.erase("sequence_number");
    std::string* text = event.is_object() ? delta_text(event) : nullptr;
    if (text != nullptr && !events.empty() && events.back().is_object() && delta_text(events.back()) != nullptr &&
        keys_without_text(event) == keys_without_text(events.back())) {
      *delta_text(events.back()) += *text;
    } else {
      events.push_back(std::move(event));
    }
  }
  return events;
}

void expect_events(const std::string& stream, const std::string& vector) {
  const std::vector<ReplyJson> got = events_of(stream), wanted = events_of(read_vector(vector));
  ASSERT_EQ(got.size(), wanted.size()) << stream;
  for (size_t i = 0; i < got.size(); ++i) {
    for (const auto& [key, member] : wanted[i].items()) {
      if (key == "response") {  // ours repeats the settings, too
        for (const auto& [name, value] : member.items())
          EXPECT_EQ(got[i]["response"][name].dump(), value.dump()) << name;
      } else if (wanted[i].is_object()) {
        EXPECT_EQ(got[i][key].dump(), member.dump()) << vector << " event " << i << " " << key;
      } else {
        EXPECT_EQ(got[i], wanted[i]);
      }
    }
  }
}

struct ModelText {
  std::string text;
  ParserOptions parser;
  Usage usage;
};

ModelText vector_text() {
  ModelText model;
  model.text = read_json_vector("chat_stream_tools.model_text.json")["text"];
  model.parser.start = AnswerStart::kReasoning;
  model.parser.calls = true;
  model.usage.prompt_tokens = 411;
  model.usage.completion_tokens = 96;
  model.usage.cached_tokens = 384;
  return model;
}

// The vectors count the reasoning tokens of another tokenizer.
std::string with_reasoning_tokens(std::string text) {
  const size_t at = text.find("\"reasoning_tokens\":");
  if (at == std::string::npos) return text;
  const size_t begin = at + std::string("\"reasoning_tokens\":").size();
  return text.replace(begin, text.find_first_of(",}", begin) - begin, "3");
}

TEST(Answers, AChatStreamIsTheVector) {
  TestModel test;
  const ModelText model = vector_text();
  ChatAnswerOptions options;
  options.id = "chatcmpl-1";
  options.model = "m";
  options.stream = options.include_usage = true;
  ChatAnswer answer(test.tokenizer(), model.parser, 1, options);
  const std::string stream = run_answer(answer, test.tokenizer(), model.text, FinishReason::kStop, model.usage, true);
  expect_events(with_reasoning_tokens(stream), "chat_stream_tools.sse");
}

TEST(Answers, AChatReplyIsTheVector) {
  TestModel test;
  const ModelText model = vector_text();
  ChatAnswerOptions options;
  options.id = "chatcmpl-1";
  options.model = "m";
  ChatAnswer answer(test.tokenizer(), model.parser, 1, options);
  run_answer(answer, test.tokenizer(), model.text, FinishReason::kStop, model.usage, false);
  std::vector<std::string> got_ids, wanted_ids;
  const ReplyJson got = normalised(ReplyJson::parse(with_reasoning_tokens(answer.body())), got_ids);
  const ReplyJson wanted = normalised(read_json_vector("chat_nonstream_tools.json"), wanted_ids);
  EXPECT_EQ(got["choices"][0]["message"]["reasoning_content"], "Need weather.");
  for (const auto& [key, member] : wanted.items()) {
    if (key == "usage") {
      for (const auto& [name, value] : member.items()) EXPECT_EQ(got[key][name].dump(), value.dump());
    } else if (key == "choices") {
      for (const auto& [name, value] : member[0].items()) EXPECT_EQ(ReplyJson(got[key][0][name]), value) << name;
    } else {
      EXPECT_EQ(got[key], member) << key;
    }
  }
}

TEST(Answers, AnAnthropicStreamIsTheVector) {
  TestModel test;
  ModelText model = vector_text();
  const size_t second = model.text.find("<\uFF5CDSML\uFF5C invoke name=\"now\">");
  model.text.resize(second);  // the vector has one call
  AnthropicAnswerOptions options;
  options.id = "msg_1";
  options.model = "m";
  options.stream = true;
  options.prompt_tokens = 411;
  AnthropicAnswer answer(test.tokenizer(), model.parser, options);
  const std::string stream = run_answer(answer, test.tokenizer(), model.text, FinishReason::kStop, model.usage, true);
  const std::vector<ReplyJson> got = events_of(stream), wanted = events_of(read_vector("anthropic_stream.sse"));
  ASSERT_EQ(got.size(), wanted.size()) << stream;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i]["type"], wanted[i]["type"]);
    if (got[i]["type"] == "content_block_start") {
      EXPECT_EQ(got[i].dump(), wanted[i].dump());
    }
    if (got[i]["type"] == "content_block_delta" && got[i]["delta"]["type"] != "signature_delta") {
      EXPECT_EQ(got[i].dump(), wanted[i].dump());
    }
  }
  EXPECT_EQ(got.back()["type"], "message_stop");
  const ReplyJson& last = got[got.size() - 2];
  EXPECT_EQ(last["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(last["usage"]["input_tokens"], 27);
  EXPECT_EQ(last["usage"]["cache_read_input_tokens"], 384);
}

TEST(Answers, AResponsesStreamIsTheVector) {
  TestModel test;
  ModelText model = vector_text();
  model.text.resize(model.text.find("<\uFF5CDSML\uFF5C invoke name=\"now\">"));
  ResponsesAnswerOptions options;
  options.id = "resp_1";
  options.model = "m";
  options.stream = true;
  options.settings = ReplyJson::object();
  ResponsesAnswer answer(test.tokenizer(), model.parser, options);
  const std::string stream = run_answer(answer, test.tokenizer(), model.text, FinishReason::kStop, model.usage, true);
  expect_events(with_reasoning_tokens(stream), "responses_stream.sse");
  int64_t sequence = 0;
  for (const auto& [name, data] : split_events(stream))
    EXPECT_EQ(ReplyJson::parse(data)["sequence_number"], sequence++);
}

// Streams and whole replies say the same, for text, reasoning, calls and answers that were cut off.
TEST(Answers, StreamsSayWhatWholeRepliesSay) {
  TestModel test;
  const ModelText model = vector_text();
  for (size_t length = 1; length < model.text.size(); length += 7) {
    while ((static_cast<unsigned char>(model.text[length]) & 0xC0) == 0x80) ++length;  // whole characters
    const std::string text = model.text.substr(0, length);
    ChatAnswerOptions options;
    options.id = "a";
    ChatAnswer whole(test.tokenizer(), model.parser, 1, options);
    run_answer(whole, test.tokenizer(), text, FinishReason::kLength, model.usage, false);
    options.stream = true;
    ChatAnswer streamed(test.tokenizer(), model.parser, 1, options);
    const auto events =
        split_events(run_answer(streamed, test.tokenizer(), text, FinishReason::kLength, model.usage, true));
    std::string content, reasoning;
    std::vector<std::string> arguments;
    for (const auto& [name, data] : events) {
      if (data == "[DONE]") continue;
      const ReplyJson delta = ReplyJson::parse(data)["choices"][0]["delta"];
      content += delta.value("content", "");
      reasoning += delta.value("reasoning_content", "");
      for (const auto& call : delta.value("tool_calls", ReplyJson::array())) {
        if (call.contains("id")) arguments.emplace_back();
        arguments.back() += call["function"]["arguments"];
      }
    }
    const ReplyJson message = ReplyJson::parse(whole.body())["choices"][0]["message"];
    EXPECT_EQ(content, message["content"].is_null() ? "" : message["content"].get<std::string>());
    EXPECT_EQ(reasoning, message.value("reasoning_content", ""));
    const ReplyJson calls = message.value("tool_calls", ReplyJson::array());
    ASSERT_EQ(arguments.size(), calls.size());
    for (size_t i = 0; i < arguments.size(); ++i) EXPECT_EQ(calls[i]["function"]["arguments"], arguments[i]);
  }
}

TEST(Answers, WhatEndedAnAnthropicMessage) {
  TestModel test;
  const auto reason = [&](const std::string& text, FinishReason finish, const std::string& stop) {
    ParserOptions parser;
    parser.calls = true;
    if (!stop.empty()) parser.stops = {stop};
    AnthropicAnswer answer(test.tokenizer(), parser, {.id = "msg_1", .model = "m"});
    run_answer(answer, test.tokenizer(), text, finish, {}, false);
    return ReplyJson::parse(answer.body());
  };
  EXPECT_EQ(reason("hello", FinishReason::kStop, "")["stop_reason"], "end_turn");
  EXPECT_EQ(reason("hello", FinishReason::kLength, "")["stop_reason"], "max_tokens");
  const ReplyJson stopped = reason("hello", FinishReason::kStop, "ll");
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "ll");
  EXPECT_EQ(stopped["content"][0]["text"], "he");
  // Arguments that were cut off are no object: the call is not there.
  const ReplyJson cut = reason(
      "\n\n<\uFF5CDSML\uFF5C calls>\n<\uFF5CDSML\uFF5C invoke name=\"a\">\n<\uFF5CDSML\uFF5C parameter name=\"b\" "
      "string=\"true\">x",
      FinishReason::kLength, "");
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
  EXPECT_TRUE(cut["content"].empty());
}

TEST(Answers, TheLoglikelihoodOfAHarness) {
  if (!published_tokenizer()) GTEST_SKIP() << "tools/fetch_tokenizer.py has not been run";
  const Tokenizer tokenizer = Tokenizer::load(*published_tokenizer());
  const ReplyJson vector = read_json_vector("lm_eval_loglikelihood.json");
  const ReplyJson& wanted = vector["response"]["choices"][0];
  const auto id_of = [&](const std::string& text) { return tokenizer.encode(text).front(); };
  CompletionOptions options;
  options.id = "cmpl-1";
  options.model = "m";
  options.echo = true;
  options.logprobs = 1;
  options.prompts = {vector["request"]["prompt"][0].get<std::vector<int32_t>>()};
  options.raw_text = {false};
  CompletionAnswer answer(tokenizer, options);
  std::vector<TokenNews> news;
  for (size_t i = 1; i < wanted["logprobs"]["tokens"].size(); ++i) {
    TokenNews token{
        .id = id_of(wanted["logprobs"]["tokens"][i]), .logprob = wanted["logprobs"]["token_logprobs"][i], .top = {}};
    const auto& top = wanted["logprobs"]["top_logprobs"][i].items().begin();
    token.top.push_back({.id = id_of(top.key()), .logprob = top.value()});
    news.push_back(token);
  }
  const TokenNews generated = news.back();
  news.pop_back();
  std::string out;
  answer.on_prompt(0, news);
  answer.on_token(0, generated, out);
  Usage usage;
  usage.prompt_tokens = 6;
  usage.completion_tokens = 1;
  answer.on_finish(0, FinishReason::kLength, usage, out);
  const ReplyJson got = ReplyJson::parse(answer.body());
  EXPECT_TRUE(out.empty());
  for (const auto& [key, member] : wanted.items()) EXPECT_EQ(got["choices"][0][key].dump(), member.dump()) << key;
  for (const char* key : {"prompt_tokens", "completion_tokens", "total_tokens"}) {
    EXPECT_EQ(got["usage"][key], vector["response"]["usage"][key]);
  }
}

TEST(Answers, UsageOfSpeculationInEveryApi) {
  TotalUsage total;
  Usage usage;
  usage.prompt_tokens = 6;
  usage.completion_tokens = 9;
  total.add(usage, true);
  EXPECT_FALSE(openai_usage(total)["completion_tokens_details"].contains("accepted_prediction_tokens"));
  for (const auto& json : {openai_usage(total), responses_usage(total), anthropic_usage(total)}) {
    EXPECT_FALSE(json.contains("forced_acceptance"));
  }
  usage.drafted_tokens = 10;
  usage.accepted_tokens = 4;
  usage.forced_acceptance = true;
  total.add(usage, false);
  for (const auto& details :
       {openai_usage(total)["completion_tokens_details"], responses_usage(total)["output_tokens_details"]}) {
    EXPECT_EQ(details["accepted_prediction_tokens"], 4);
    EXPECT_EQ(details["rejected_prediction_tokens"], 6);
  }
  for (const auto& json : {openai_usage(total), responses_usage(total), anthropic_usage(total)}) {
    EXPECT_EQ(json["forced_acceptance"], true);
  }
}

TEST(Answers, BytesThatAreNoTextAndCollidingTokens) {
  TestModel test;
  EXPECT_EQ(completion_token(test.tokenizer(), test.tokenizer().encode("a").front(), false), "a");
  EXPECT_EQ(completion_token(test.tokenizer(), test.tokenizer().encode("\u00E9").front(), false), "bytes:\\xc3");
  EXPECT_EQ(completion_token(test.tokenizer(), 5, true), "token_id:5");
  EXPECT_EQ(printed_logprob(-std::numeric_limits<float>::infinity()), -9999);
  EXPECT_EQ(ReplyJson(printed_logprob(-0.1f)).dump(), "-0.1");
}

}  // namespace
}  // namespace folio
