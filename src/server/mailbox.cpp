#include "server/mailbox.h"

#include "base/clock.h"

namespace folio {
namespace {

TokenNews news_of(const TokenOutput& token) {
  return {.id = token.id, .logprob = token.logprob, .top = {token.top.begin(), token.top.end()}};
}

}  // namespace

void Mailbox::push(EngineEvent event) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = events_.empty();
    events_.push_back(std::move(event));
  }
  if (first) wake_();
}

std::vector<EngineEvent> Mailbox::take() {
  std::vector<EngineEvent> events;
  const std::lock_guard lock(mutex_);
  events.swap(events_);
  return events;
}

EngineEvent MailboxSink::event(EngineEvent::Kind kind, int32_t choice) const {
  EngineEvent event;
  event.kind = kind;
  event.session = session_;
  event.prompt = prompt_;
  event.choice = choice;
  event.at = now_seconds();
  return event;
}

void MailboxSink::on_token(int32_t choice, const TokenOutput& token) {
  EngineEvent news = event(EngineEvent::Kind::kToken, choice);
  news.token = news_of(token);
  mailbox_.push(std::move(news));
}

void MailboxSink::on_finish(int32_t choice, FinishReason reason, const Usage& usage, const std::string& message) {
  EngineEvent news = event(EngineEvent::Kind::kFinish, choice);
  news.finish = std::make_unique<FinishNews>(FinishNews{.reason = reason, .usage = usage, .message = message});
  mailbox_.push(std::move(news));
}

void MailboxSink::on_prompt_logprobs(std::span<const TokenOutput> tokens) {
  EngineEvent news = event(EngineEvent::Kind::kPrompt, 0);
  news.prompt_news = std::make_unique<std::vector<TokenNews>>();
  news.prompt_news->reserve(tokens.size());
  for (const TokenOutput& token : tokens) news.prompt_news->push_back(news_of(token));
  mailbox_.push(std::move(news));
}

void MailboxSink::on_prefill(int32_t choice, int64_t, const Usage& usage) {
  EngineEvent news = event(EngineEvent::Kind::kPrefill, choice);
  news.cached_tokens = usage.cached_tokens;
  mailbox_.push(std::move(news));
}

}  // namespace folio
