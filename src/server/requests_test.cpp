// What requests mean and which are refused, without a socket.
#include <gtest/gtest.h>

#include "base/error.h"
#include "protocol/field_error.h"
#include "server/fields.h"
#include "server/model_routes.h"
#include "server/openai_chat.h"
#include "server/responses_items.h"
#include "server/test_util.h"
#include "server/vectors_test_util.h"

namespace folio {
namespace {

Generation read(TestModel& test, const std::string& path, const std::string& body) {
  const Route* route = find_body_route(path);
  return route->generate(parse_body(body), test.context());
}

// The status that a body gets, 200 when it is taken, with the message.
std::pair<int, std::string> status_of(TestModel& test, const std::string& path, const std::string& body) {
  try {
    read(test, path, body);
    return {200, ""};
  } catch (const ApiError& error) {
    return {error.status(), error.what()};
  } catch (const Error& error) {
    return {400, error.what()};
  }
}

std::string prompt_text(TestModel& test, const Generation& generation) {
  return test.tokenizer().decode(generation.requests.front()->prompt);
}

TEST(Requests, TheErrorsOfTheVectors) {
  TestModel test;
  const ReplyJson vectors = read_json_vector("errors.json");
  int tried = 0;
  for (const auto& vector : vectors["cases"]) {
    if (!vector.contains("request")) continue;
    ++tried;
    const auto [status, message] =
        status_of(test, vector.value("path", "/v1/chat/completions"), vector["request"].dump());
    EXPECT_EQ(status, vector["status"]) << vector["name"] << ": " << message;
  }
  EXPECT_GE(tried, 8);
  const ApiError unknown(404, "The model `x` does not exist.", "model");
  EXPECT_EQ(ReplyJson::parse(error_body(unknown, ApiStyle::kOpenAi)), vectors["cases"][0]["body"]);
  const auto [status, message] = status_of(test, "/v1/completions", R"({"prompt": "a", "max_tokens": 9000})");
  EXPECT_EQ(status, 400);
  EXPECT_TRUE(message.starts_with("This model's maximum context length is")) << message;
}

TEST(Requests, TheTokensOfTheVectors) {
  if (!published_tokenizer()) GTEST_SKIP() << "tools/fetch_tokenizer.py has not been run";
  const Tokenizer tokenizer = Tokenizer::load(*published_tokenizer());
  TestModel test;
  test.model().tokenizer = &tokenizer;
  test.model().max_model_len = 1048576;
  const bool has_chat_tokens = tokenizer.find_added("<\uFF5CSystem\uFF5C>").has_value();
  const ReplyJson vectors = read_json_vector("tokenize.json");
  for (const auto& vector : vectors["cases"]) {
    const bool back = vector.contains("detokenize_request");
    const ReplyJson& request = back ? vector["detokenize_request"] : vector["request"];
    if ((back || request.contains("messages")) && !has_chat_tokens) continue;
    const Json body = parse_body(request.dump());
    const HttpReply reply = back ? detokenize(body, test.context()) : tokenize(body, test.context());
    const ReplyJson got = ReplyJson::parse(reply.body);
    for (const auto& [key, member] : (back ? vector["detokenize_response"] : vector["response"]).items()) {
      EXPECT_EQ(got[key], member) << request.dump();
    }
  }
}

TEST(Requests, NumbersAndNulls) {
  const Json body = parse_body(R"({"a": 5, "b": 5.0, "c": 5.5, "d": null, "e": true, "f": 1e30, "g": -0.0, "h": "5"})");
  const Fields fields(body);
  EXPECT_EQ(fields.integer("a", 0, 10), 5);
  EXPECT_EQ(fields.integer("b"), 5);
  EXPECT_EQ(fields.integer("d"), std::nullopt);
  EXPECT_EQ(fields.integer("missing"), std::nullopt);
  EXPECT_EQ(fields.integer("g"), 0);
  for (const char* name : {"c", "e", "f", "h"}) EXPECT_THROW(fields.integer(name), ApiError) << name;
  EXPECT_THROW(fields.integer("a", 6), ApiError);
  EXPECT_THROW(fields.number("e", 0, 2), ApiError);
  EXPECT_THROW(fields.boolean("a"), ApiError);
  EXPECT_THROW(parse_body("[]"), ApiError);
}

TEST(Requests, SamplingReachesTheEngine) {
  TestModel test;
  const Generation generation = read(test, "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}],
      "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "seed": -1, "n": 3, "max_tokens": 9,
      "max_completion_tokens": 8, "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.5,
      "logit_bias": {"5": -100, "6": 2.5}, "min_tokens": 2, "stop_token_ids": [9], "logprobs": true, "top_logprobs": 4})");
  const Request& request = *generation.requests.front();
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.min_p, 0.125f);
  EXPECT_EQ(request.sampling.seed, UINT64_MAX);
  EXPECT_EQ(request.choices, 3);
  EXPECT_EQ(request.max_tokens, 8);
  EXPECT_EQ(request.presence_penalty, 1);
  EXPECT_EQ(request.frequency_penalty, -1);
  EXPECT_EQ(request.repetition_penalty, 1.5f);
  ASSERT_EQ(request.logit_bias.size(), 2U);
  EXPECT_EQ(request.logit_bias[1].delta, 2.5f);
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_EQ(request.stop_ids.front(), 9);
  EXPECT_EQ(request.logprobs, 4);
  EXPECT_TRUE(request.policies.empty());
}

TEST(Requests, WhenAChatNeedsAPolicy) {
  TestModel test;
  const auto policies = [&](const std::string& more) {
    return read(test, "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "n": 2)" + more + "}")
        .requests.front()
        ->policies.size();
  };
  const std::string tool = R"({"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}})";
  EXPECT_EQ(policies(""), 0U);
  EXPECT_EQ(policies(R"(, "stop": "a")"), 2U);
  EXPECT_EQ(policies(R"(, "tools": [)" + tool + "]"), 2U);
  EXPECT_EQ(policies(R"(, "tools": [)" + tool + R"(], "tool_choice": "none")"), 0U);
  EXPECT_EQ(policies(R"(, "tools": [)" + tool + R"(], "tool_choice": "required")"), 2U);
  EXPECT_EQ(policies(R"(, "response_format": {"type": "json_object"})"), 2U);
  EXPECT_EQ(policies(R"(, "structured_outputs": {"choice": ["a", "b"]})"), 2U);
  EXPECT_EQ(policies(R"(, "allowed_token_ids": [5])"), 2U);
}

TEST(Requests, ThePromptOfAnAnthropicChat) {
  TestModel test;
  const Generation generation = read(test, "/v1/messages", R"({"max_tokens": 4, "thinking": {"type": "disabled"},
      "system": [{"type": "text", "text": "x-anthropic-billing-header: 7"}, {"type": "text", "text": "S"}],
      "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]},
                   {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ""},
                                                     {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
                   {"role": "user", "content": [{"type": "text", "text": "after"},
                                                {"type": "tool_result", "tool_use_id": "1", "content": "r"}]}]})");
  const std::string prompt = prompt_text(test, generation);
  EXPECT_TRUE(prompt.find("<\uFF5CSystem\uFF5C>S<\uFF5CUser\uFF5C>q") != std::string::npos) << prompt;
  EXPECT_TRUE(prompt.find("<tool_result>r</tool_result>\n\nafter") != std::string::npos) << prompt;
  EXPECT_TRUE(prompt.ends_with("<\uFF5CAssistant\uFF5C></think>")) << prompt;
  EXPECT_EQ(prompt.find("billing"), std::string::npos);
}

TEST(Requests, TheItemsOfResponsesAreTurns) {
  ResponseStore stored(1, 1000);
  stored.put(
      "resp_1",
      {.messages = {}, .body = "", .items = {Json::parse(R"({"type": "message", "id": "msg_1", "role": "assistant",
                                                  "content": [{"type": "output_text", "text": "more"}]})")}});
  std::vector<Message> messages;
  read_input(parse_body(R"({"input": [
      {"role": "user", "content": "q"},
      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "think"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "say"}]},
      {"type": "item_reference", "id": "msg_1"},
      {"type": "function_call", "call_id": "c", "name": "f", "namespace": "ns", "arguments": "{\"a\": 1}"},
      {"type": "function_call_output", "call_id": "c", "output": "r"},
      {"type": "web_search_call", "id": "w"}]})")
                 .find("input")[0],
             DeveloperRole::kSystem, stored, messages);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[1].role, Role::kAssistant);
  EXPECT_EQ(messages[1].reasoning, "think");
  EXPECT_EQ(messages[1].content.front().text, "say");
  EXPECT_EQ(messages[1].content.back().text, "more");
  EXPECT_EQ(messages[1].tool_calls.front().name, "ns::f");
  EXPECT_EQ(messages[2].role, Role::kTool);
}

TEST(Requests, AResponseGoesOnFromAStoredOne) {
  TestModel test;
  Generation first =
      read(test, "/v1/responses", R"({"input": "one", "instructions": "I", "reasoning": {"effort": "none"}})");
  run_answer(*first.answer, test.tokenizer(), "two", FinishReason::kStop, {}, false);
  const ReplyJson reply = ReplyJson::parse(first.answer->body());
  EXPECT_EQ(reply["status"], "completed");
  EXPECT_EQ(reply["instructions"], "I");
  const std::string id = reply["id"];
  const Generation second = read(test, "/v1/responses", R"({"input": "three", "reasoning": {"effort": "none"},
      "previous_response_id": ")" + id + R"("})");
  const std::string prompt = prompt_text(test, second);
  EXPECT_TRUE(prompt.find("one<\uFF5CAssistant\uFF5C></think>two") != std::string::npos) << prompt;
  EXPECT_TRUE(prompt.find("three") != std::string::npos) << prompt;
  EXPECT_EQ(prompt.find("System"), std::string::npos) << prompt;  // instructions are not inherited
  EXPECT_EQ(status_of(test, "/v1/responses", R"({"input": "x", "previous_response_id": "resp_none"})").first, 404);
  // Not stored when the client does not want it.
  Generation secret = read(test, "/v1/responses", R"({"input": "one", "store": false})");
  run_answer(*secret.answer, test.tokenizer(), "two", FinishReason::kStop, {}, false);
  const std::string secret_id = ReplyJson::parse(secret.answer->body())["id"];
  EXPECT_EQ(test.context().responses.find(secret_id), nullptr);
}

TEST(Requests, PromptsOfCompletions) {
  TestModel test;
  const int32_t a = test.tokenizer().encode("a").front();
  const auto prompts = [&](const std::string& fields) {
    std::vector<std::vector<int32_t>> ids;
    for (const auto& request : read(test, "/v1/completions", "{" + fields + "}").requests)
      ids.push_back(request->prompt);
    return ids;
  };
  using Ids = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(prompts(R"("prompt": "a")"), (Ids{{0, a}}));
  EXPECT_EQ(prompts(R"("prompt": "a", "add_special_tokens": false)"), (Ids{{a}}));
  EXPECT_EQ(prompts(R"("prompt": ["a", "a"])"), (Ids{{0, a}, {0, a}}));
  EXPECT_EQ(prompts(R"("prompt": [7, 8])"), (Ids{{7, 8}}));
  EXPECT_EQ(prompts(R"("prompt": [[7], [8]])"), (Ids{{7}, {8}}));
  EXPECT_EQ(prompts(R"("prompt": "<\uff5cbegin\u2581of\u2581sentence\uff5c>a")"), (Ids{{0, a}}));
  const Generation middle = read(test, "/v1/completions", R"({"prompt": "a", "suffix": "b"})");
  EXPECT_EQ(prompt_text(test, middle),
            "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C><\uFF5Cfim\u2581begin\uFF5C>a<\uFF5Cfim\u2581hole\uFF5C>b<"
            "\uFF5Cfim\u2581end\uFF5C>");
}

TEST(Requests, TheRestOfTheContextIsTheDefaultLimit) {
  TestModel test;
  const std::string body = R"({"messages": [{"role": "user", "content": "x"}]})";
  const std::shared_ptr<const Request> all = read(test, "/v1/chat/completions", body).requests.front();
  EXPECT_EQ(all->max_tokens, 8192 - std::ssize(all->prompt));
  test.model().default_max_tokens = 100;
  EXPECT_EQ(read(test, "/v1/chat/completions", body).requests.front()->max_tokens, 100);
}

}  // namespace
}  // namespace folio
