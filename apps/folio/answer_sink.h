// An answer on its way from the engine's thread to the one that shows it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "kept_answer.h"

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
    kept_.on_prompt_logprobs(tokens);
  }
  void on_token(int32_t choice, const TokenOutput& token) override {
    const std::lock_guard lock(mutex_);
    kept_.on_token(choice, token);
    news_.tokens.push_back(token.id);
    changed_.notify_one();
  }
  void on_prefill(int32_t, int64_t done, const Usage&) override {
    const std::lock_guard lock(mutex_);
    news_.prefilled = done;
    changed_.notify_one();
  }
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    kept_.on_finish(choice, reason, usage, message);
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
  const KeptAnswer& answer() const { return kept_.answer; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  AnswerKeeper kept_;
  int64_t seen_ = 0;
};

}  // namespace folio
