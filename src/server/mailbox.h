// From the engine's thread to the I/O thread: what became of requests. The engine never waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/request.h"

namespace folio {

struct TokenNews {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TopLogprob> top;
};

struct FinishNews {
  FinishReason reason = FinishReason::kAbort;
  Usage usage;
  std::string message;
};

struct EngineEvent {
  enum class Kind : uint8_t { kPrefill, kPrompt, kToken, kFinish };
  Kind kind = Kind::kToken;
  uint64_t session = 0;
  int32_t prompt = 0;                                   // of the session
  int32_t choice = 0;                                   // of the prompt
  double at = 0;                                        // when the engine said it, on the clock of now_seconds()
  TokenNews token;                                      // kToken
  int64_t cached_tokens = 0;                            // kPrefill: of the prompt, from the prefix cache
  std::unique_ptr<std::vector<TokenNews>> prompt_news;  // kPrompt: tokens 1 .. n-1
  std::unique_ptr<FinishNews> finish;                   // kFinish
};

// Holds events until the I/O thread takes them, which it does in one go for all that have come meanwhile. What it holds
// is bounded by what the engine does during one turn of the I/O thread.
class Mailbox {
 public:
  // `wake` is called by the engine's thread when there is something new; it must not block. It lets the I/O thread call
  // take().
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void push(EngineEvent event);
  // All that have come since the last call, in order.
  std::vector<EngineEvent> take();

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<EngineEvent> events_;
};

// Puts what the engine says about one request of a session into the mailbox, which must outlive it.
class MailboxSink final : public Sink {
 public:
  MailboxSink(Mailbox& mailbox, uint64_t session, int32_t prompt)
      : mailbox_(mailbox), session_(session), prompt_(prompt) {}
  void on_token(int32_t choice, const TokenOutput& token) override;
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, const std::string& message) override;
  void on_prompt_logprobs(std::span<const TokenOutput> tokens) override;
  void on_prefill(int32_t choice, int64_t done, const Usage& usage) override;

 private:
  EngineEvent event(EngineEvent::Kind kind, int32_t choice) const;

  Mailbox& mailbox_;
  const uint64_t session_;
  const int32_t prompt_;
};

}  // namespace folio
