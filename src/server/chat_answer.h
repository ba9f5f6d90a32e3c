// The reply of /v1/chat/completions (protocol spec 5.5, 5.6).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/reply_json.h"

namespace folio {

struct ChatAnswerOptions {
  std::string id, model;
  bool stream = false, include_usage = false, continuous_usage = false;
  bool logprobs = false;
  int32_t top_logprobs = 0;
  std::optional<int32_t> prompt_logprobs;
  bool include_reasoning = true;
  bool reasoning_alias = false;         // streams have `reasoning`, too
  bool unclosed_think_content = false;  // reasoning that the end of sentence ends becomes content
  bool ids_as_tokens = false, return_ids = false;
  bool named_call = false;
  std::vector<int32_t> stop_ids;  // of the client
  std::string echo;               // content in front of every answer
  std::vector<int32_t> prompt;
};

class ChatAnswer final : public Answer {
 public:
  ChatAnswer(const Tokenizer& tokenizer, ParserOptions parser, int32_t choices, ChatAnswerOptions options);

  void begin(std::string& out) override;
  void on_prompt(int32_t, const std::vector<TokenNews>& tokens) override { prompt_news_ = tokens; }
  void on_token(int32_t choice, const TokenNews& token, std::string& out) override;
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, std::string& out) override;
  void end(std::string& out) override;
  std::string body() override;
  void fail(const ApiError& error, std::string& out) override;
  std::string finish_reason(int32_t choice) const override {
    return choices_[static_cast<size_t>(choice)].turn.finish_reason(options_.named_call);
  }

 private:
  struct Choice {
    Choice(const Tokenizer& tokenizer, const ParserOptions& parser) : turn(tokenizer, parser) {}
    ChatTurn turn;
    ParsedAnswer answer;  // so far
    std::vector<std::string> call_ids;
    ReplyJson logprobs = ReplyJson::array();  // of the tokens that are not sent yet; all when it is not streamed
    ReplyJson ids = ReplyJson::array();       // of the same tokens
  };

  void take(int32_t index, std::vector<Delta>& deltas, std::string& out);
  void send_delta(int32_t index, const Delta& delta, std::string& out);
  // A chunk of one choice; `delta` is JSON. `reason` is "" but in the choice's last chunk.
  void send(int32_t index, std::string_view delta, std::string_view reason, std::string& out);
  ReplyJson stop_reason(const Choice& choice) const;
  ReplyJson message_json(const Choice& choice) const;
  void append_usage(std::string& out) const;

  const Tokenizer& tokenizer_;
  const ChatAnswerOptions options_;
  const int64_t created_;
  std::string head_;  // of every chunk: {"id": ... "model": ...
  std::vector<Choice> choices_;
  std::vector<TokenNews> prompt_news_;  // tokens 1 .. n-1 of the prompt, where they were asked for
  std::vector<Delta> deltas_;
  TotalUsage usage_;
};

}  // namespace folio
