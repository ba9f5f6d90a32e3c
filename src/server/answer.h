// What turns the tokens of a session into the reply of one API, streamed or whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/api_error.h"
#include "server/mailbox.h"

namespace folio {

// One reply in the making; on the I/O thread alone. Choices are numbered over all prompts: prompt * n + i. The bytes of
// a stream are appended to `out`; the concatenation of a stream's parts says what body() says.
class Answer {
 public:
  virtual ~Answer() = default;

  // The events before the first token. Not called for replies that are not streamed.
  virtual void begin(std::string& out) { static_cast<void>(out); }
  // Some of a prompt has run, `cached` tokens of it came from the prefix cache. Before its first token, if at all.
  virtual void on_prefill(int32_t prompt, int64_t cached) { static_cast<void>(prompt), static_cast<void>(cached); }
  // The tokens 1 .. n-1 of a prompt, before its first token.
  virtual void on_prompt(int32_t prompt, const std::vector<TokenNews>& tokens) {
    static_cast<void>(prompt), static_cast<void>(tokens);
  }
  virtual void on_token(int32_t choice, const TokenNews& token, std::string& out) = 0;
  // `reason` is kLength, kStop or kAbort.
  virtual void on_finish(int32_t choice, FinishReason reason, const Usage& usage, std::string& out) = 0;
  // All choices have finished: the end of the stream.
  virtual void end(std::string& out) = 0;
  // All choices have finished: the reply that is not streamed.
  virtual std::string body() = 0;
  // The end of a stream that has begun and cannot go on.
  virtual void fail(const ApiError& error, std::string& out) = 0;
  virtual ApiStyle style() const { return ApiStyle::kOpenAi; }
  // "stop", "length", "tool_calls", ...: of a finished choice, for the log.
  virtual std::string finish_reason(int32_t choice) const = 0;
};

// What a request asks of the engine, and what makes its reply.
struct Generation {
  std::string id;     // of the reply
  std::string model;  // as the client named it
  bool stream = false;
  std::vector<std::shared_ptr<Request>> requests;  // one for each prompt, all with as many choices, without sinks
  std::unique_ptr<Answer> answer;
};

// Tokens of all choices, prompts counted once.
struct TotalUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompts
  int64_t approximate_tokens =
      0;  // of these, taken by encoder replay: what follows is close to a cold run's, not equal
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the completions
  int64_t drafted_tokens = 0;    // that were verified, under speculation
  int64_t accepted_tokens = 0;   // of these
  bool forced_acceptance = false;

  // Takes the usage of a finished choice, `first` of its prompt or not.
  void add(const Usage& usage, bool first);
};

}  // namespace folio
