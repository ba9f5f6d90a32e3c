// What an engine did with its requests: their answers, and of every run the plan, the pages that it shared and the
// pages that it published. From that a solo run can repeat each run, hits on pages behind hits included.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "engine/block_manager.h"
#include "engine/solo_run.h"

namespace folio {

struct RecordedAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<TopLogprob> top;  // as many for each as the request asks for
  FinishReason reason = FinishReason::kLength;
  std::string message;
  Usage usage;
  int finishes = 0;
};

// Keeps what a request's sink is told.
class AnswerRecorder final : public Sink {
 public:
  explicit AnswerRecorder(int32_t choices) : answers_(static_cast<size_t>(choices)) {}
  void on_token(int32_t choice, const TokenOutput& token) override;
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, const std::string& message) override;
  void on_prompt_logprobs(std::span<const TokenOutput> tokens) override;

  const RecordedAnswer& answer(int32_t choice) const { return answers_[static_cast<size_t>(choice)]; }
  int32_t choices() const { return static_cast<int32_t>(answers_.size()); }
  const std::vector<float>& prompt_logprobs() const { return prompt_logprobs_; }
  const std::vector<TopLogprob>& prompt_top() const { return prompt_top_; }
  bool finished() const;
  // Tokens or finishes that came after a finish.
  bool talked_on() const { return talked_on_; }

 private:
  std::vector<RecordedAnswer> answers_;
  std::vector<float> prompt_logprobs_;
  std::vector<TopLogprob> prompt_top_;
  bool talked_on_ = false;
};

// One admission of one choice, or a sibling's share of one.
struct RunRecord {
  struct PageOrigin {
    size_t run = 0;
    int64_t block = 0;
  };
  struct PublishedBlock {
    int64_t block = 0;
    PageBytes bytes;
  };
  RequestId id = 0;
  int32_t choice = 0;
  ReplayPlan plan;
  std::vector<int32_t> tokens;            // known when it began
  std::vector<PageOrigin> shared;         // of the pages before plan.resume
  std::vector<PublishedBlock> published;  // with their bytes as they were published
};

class RunRecorder final : public BlockWatcher {
 public:
  explicit RunRecorder(ModelRunner& runner) : runner_(runner) {}

  void admitted(const RequestState& state) override;
  void forked(const RequestState& parent, const RequestState& child) override;
  void published(const RequestState& state, int64_t block, int32_t page) override;

  // In the order in which they began: a run's shared pages come from runs before it.
  const std::vector<RunRecord>& runs() const { return runs_; }
  // Those of one choice.
  std::vector<size_t> runs_of(RequestId id, int32_t choice) const;
  // Pages that do not hold what they held when they were published, as far as they are findable or were found.
  const std::vector<std::string>& changed_pages() const { return changed_; }
  void check_published_pages();

 private:
  struct Content {
    RunRecord::PageOrigin origin;
    size_t index = 0;  // in the run's `published`
  };
  void check(int32_t page);

  ModelRunner& runner_;
  std::vector<RunRecord> runs_;
  std::map<std::pair<RequestId, int32_t>, std::vector<size_t>> by_choice_;
  std::unordered_map<int32_t, Content> contents_;  // by page
  std::vector<std::string> changed_;
};

}  // namespace folio
