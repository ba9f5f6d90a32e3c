#include "engine/fuzz_recorder.h"

#include <algorithm>

#include "base/error.h"

namespace folio {

void AnswerRecorder::on_token(int32_t choice, const TokenOutput& token) {
  RecordedAnswer& answer = answers_[static_cast<size_t>(choice)];
  talked_on_ = talked_on_ || answer.finishes > 0;
  answer.tokens.push_back(token.id);
  answer.logprobs.push_back(token.logprob);
  answer.top.insert(answer.top.end(), token.top.begin(), token.top.end());
}

void AnswerRecorder::on_prompt_logprobs(std::span<const TokenOutput> tokens) {
  prompt_logprobs_.clear();
  prompt_top_.clear();
  for (const TokenOutput& token : tokens) {
    prompt_logprobs_.push_back(token.logprob);
    prompt_top_.insert(prompt_top_.end(), token.top.begin(), token.top.end());
  }
}

void AnswerRecorder::on_finish(int32_t choice, FinishReason reason, const Usage& usage, const std::string& message) {
  RecordedAnswer& answer = answers_[static_cast<size_t>(choice)];
  answer.reason = reason;
  answer.usage = usage;
  answer.message = message;
  talked_on_ = talked_on_ || answer.finishes++ > 0;
}

bool AnswerRecorder::finished() const {
  return std::ranges::all_of(answers_, [](const RecordedAnswer& answer) { return answer.finishes > 0; });
}

void RunRecorder::admitted(const RequestState& state) {
  RunRecord run{.id = state.id,
                .choice = state.choice,
                .plan = state.usage.plans.back(),
                .tokens = state.tokens,
                .shared = {},
                .published = {}};
  for (const int32_t page : state.pages) {
    check(page);
    const auto content = contents_.find(page);
    if (content == contents_.end()) {
      changed_.push_back(concat("request ", state.id, " hit page ", page, ", which nobody published"));
      continue;
    }
    run.shared.push_back(content->second.origin);
  }
  by_choice_[{state.id, state.choice}].push_back(runs_.size());
  runs_.push_back(std::move(run));
}

void RunRecorder::forked(const RequestState& parent, const RequestState& child) {
  RunRecord run = runs_[by_choice_.at({parent.id, parent.choice}).back()];
  run.choice = child.choice;
  run.tokens = child.tokens;
  run.published.clear();
  by_choice_[{child.id, child.choice}].push_back(runs_.size());
  runs_.push_back(std::move(run));
}

void RunRecorder::published(const RequestState& state, int64_t block, int32_t page) {
  const size_t run = by_choice_.at({state.id, state.choice}).back();
  contents_[page] = {.origin = {.run = run, .block = block}, .index = runs_[run].published.size()};
  runs_[run].published.push_back({.block = block, .bytes = read_page(runner_, page)});
}

std::vector<size_t> RunRecorder::runs_of(RequestId id, int32_t choice) const {
  const auto found = by_choice_.find({id, choice});
  return found == by_choice_.end() ? std::vector<size_t>{} : found->second;
}

void RunRecorder::check_published_pages() {
  for (const auto& [page, content] : contents_) {
    if (runner_.pages().published(page)) check(page);
  }
}

void RunRecorder::check(int32_t page) {
  const auto content = contents_.find(page);
  if (content == contents_.end()) return;
  const RunRecord& run = runs_[content->second.origin.run];
  if (read_page(runner_, page) == run.published[content->second.index].bytes) return;
  changed_.push_back(concat("page ", page, ", block ", content->second.origin.block, " of request ", run.id,
                            ", has changed since it was published"));
}

}  // namespace folio
