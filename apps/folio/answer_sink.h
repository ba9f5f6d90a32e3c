// An answer on its way from the engine's thread to the one that shows it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "token_logprobs.h"

namespace folio {

// Takes the answer from the engine's thread and hands it to the one that shows it.
class AnswerSink final : public Sink {
 public:
  struct News {
    std::vector<int32_t> tokens;  // since the last news
    int64_t prefilled = 0;        // tokens of the prompt that have run
    bool finished = false;
  };

  void on_prompt_logprobs(std::span<const TokenOutput> tokens) override {
    const std::lock_guard lock(mutex_);
    for (const TokenOutput& token : tokens) prompt_logprobs_.push_back(TokenLogprob::kept(token));
  }
  void on_token(int32_t, const TokenOutput& token) override {
    const std::lock_guard lock(mutex_);
    logprobs_.push_back(TokenLogprob::kept(token));
    last_token_ = now_seconds();
    if (first_token_ == 0) first_token_ = last_token_;
    news_.tokens.push_back(token.id);
    changed_.notify_one();
  }
  void on_prefill(int32_t, int64_t done, const Usage&) override {
    const std::lock_guard lock(mutex_);
    news_.prefilled = done;
    changed_.notify_one();
  }
  void on_finish(int32_t, FinishReason reason, const Usage& usage, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    reason_ = reason;
    usage_ = usage;
    message_ = message;
    news_.finished = true;
    changed_.notify_one();
  }

  // What is new, after a while at the latest.
  News wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(50),
                      [&] { return !news_.tokens.empty() || news_.prefilled > seen_ || news_.finished; });
    seen_ = news_.prefilled;
    News news = news_;
    news_.tokens.clear();
    return news;
  }

  // When it is finished.
  const std::vector<TokenLogprob>& logprobs() const { return logprobs_; }
  const std::vector<TokenLogprob>& prompt_logprobs() const { return prompt_logprobs_; }
  FinishReason reason() const { return reason_; }
  const Usage& usage() const { return usage_; }
  const std::string& message() const { return message_; }
  double first_token() const { return first_token_; }  // on the clock of now_seconds(); 0: there is none
  double last_token() const { return last_token_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  std::vector<TokenLogprob> logprobs_, prompt_logprobs_;
  int64_t seen_ = 0;
  FinishReason reason_ = FinishReason::kAbort;
  Usage usage_;
  std::string message_;
  double first_token_ = 0, last_token_ = 0;
};

}  // namespace folio
