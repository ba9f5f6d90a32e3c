// The reply of /v1/completions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/reply_json.h"
#include "server/token_text.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_strings.h"

namespace folio {

struct CompletionOptions {
  std::string id, model;
  bool stream = false, include_usage = false, continuous_usage = false;
  int32_t choices = 1;  // of each prompt
  bool echo = false;
  bool drop_tokens = false;         // echo with max_tokens 0: the token that the engine made is not wanted
  std::optional<int32_t> logprobs;  // alternatives of each token
  std::optional<int32_t> prompt_logprobs;
  bool ids_as_tokens = false;  // tokens are printed as "token_id:N"
  bool return_ids = false;
  bool skip_special = true;
  std::vector<std::string> stops;
  bool include_stop = false;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<bool> raw_text;  // of each prompt: it was text, so that the BOS in front is ours
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  int32_t eos = 1;
};

class CompletionAnswer final : public Answer {
 public:
  CompletionAnswer(const Tokenizer& tokenizer, CompletionOptions options);

  void on_prompt(int32_t prompt, const std::vector<TokenNews>& tokens) override;
  void on_token(int32_t choice, const TokenNews& token, std::string& out) override;
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, std::string& out) override;
  void end(std::string& out) override;
  std::string body() override;
  void fail(const ApiError& error, std::string& out) override;
  std::string finish_reason(int32_t choice) const override { return choices_[static_cast<size_t>(choice)].reason; }

 private:
  // The four arrays of "logprobs", for the tokens of one part of a choice.
  struct Logprobs {
    ReplyJson text_offset = ReplyJson::array(), token_logprobs = ReplyJson::array(), tokens = ReplyJson::array(),
              top_logprobs = ReplyJson::array();
    ReplyJson json() const;
  };
  struct Choice {
    Choice(const Tokenizer& tokenizer, const CompletionOptions& options)
        : detokenizer(tokenizer, options.skip_special), stops(options.stops) {}
    Detokenizer detokenizer;
    StopStrings stops;
    std::string text;   // of the parts that are not sent yet; whole when the reply is not streamed
    Logprobs logprobs;  // of these
    ReplyJson ids = ReplyJson::array();
    int64_t characters = 0;  // of the text of all tokens so far: the next one's text_offset
    std::string reason;      // "": not finished
    ReplyJson stop_reason;
    int64_t tokens = 0;
    bool echoed = false;  // the prompt stands in front
  };

  int32_t prompt_of(int32_t choice) const { return choice / options_.choices; }
  bool ends(int32_t id) const;
  void echo_prompt(int32_t index, Choice& choice) const;
  void add_logprob(Choice& choice, const TokenNews& token, int32_t alternatives) const;
  void append_choice(int32_t index, std::string& out);
  void append_usage(std::string& out) const;
  void send(int32_t index, std::string& out);

  const Tokenizer& tokenizer_;
  const CompletionOptions options_;
  std::string head_;  // of every chunk and of the reply: {"id": ... "model": ...
  std::vector<Choice> choices_;
  std::vector<std::vector<TokenNews>> prompt_news_;  // tokens 1 .. n-1 of each prompt, where they were asked for
  TotalUsage usage_;
};

}  // namespace folio
