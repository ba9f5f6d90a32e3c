#include "server/session.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "server/event_stream.h"

namespace folio {
namespace {

constexpr int kGoneStatus = 499;  // in logs: the client closed the connection before it was answered

FinishedAs finished_as(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return FinishedAs::kStop;
    case FinishReason::kLength:
      return FinishedAs::kLength;
    case FinishReason::kAbort:
      return FinishedAs::kAbort;
    default:
      return FinishedAs::kError;
  }
}

}  // namespace

Session::Session(uint64_t number, SessionHost& host, ReplyChannel channel, RequestRecord record)
    : number_(number), host_(host), channel_(std::move(channel)), record_(std::move(record)) {
  set_timeout(host_.timeout_seconds);
}

void Session::set_timeout(double seconds) { deadline_ = seconds > 0 ? record_.arrived + seconds : 0; }

void Session::start(Generation generation) {
  generation_ = std::move(generation);
  record_.id = generation_.id;
  record_.model = generation_.model;
  record_.stream = generation_.stream;
  if (error_ != nullptr || gone_) return complete();
  if (submit()) return;
  cancel_engine();
  if (unfinished_ == 0) complete();
}

// False with error_ set when the engine does not take all of it.
bool Session::submit() {
  per_prompt_ = generation_.requests.front()->choices;
  const int64_t wanted = std::ssize(generation_.requests) * per_prompt_;
  if (host_.choices + wanted > host_.max_requests) {
    error_ = std::make_unique<ApiError>(429,
                                        concat("The server is full: ", host_.choices, " of at most ",
                                               host_.max_requests, " choices are unfinished. Try again later."),
                                        "", 1);
    return false;
  }
  choices_.resize(static_cast<size_t>(wanted));
  record_.submitted = now_seconds();
  try {
    for (size_t i = 0; i < generation_.requests.size(); ++i) {
      Request& request = *generation_.requests[i];
      request.sink = std::make_shared<MailboxSink>(host_.mailbox, number_, static_cast<int32_t>(i));
      host_.metrics.max_tokens.observe(static_cast<double>(request.max_tokens), request.choices);
      submitted_.push_back(host_.backend.submit(generation_.requests[i]));
      unfinished_ += request.choices;
      host_.choices += request.choices;
    }
  } catch (const Error& error) {
    error_ = std::make_unique<ApiError>(to_api_error(error));
    return false;
  }
  host_.metrics.choices.observe(static_cast<double>(per_prompt_));
  return true;
}

void Session::refuse(const ApiError& error) {
  if (error_ == nullptr) error_ = std::make_unique<ApiError>(error);
  complete();
}

void Session::cancel_engine() {
  for (const RequestId id : submitted_) host_.backend.cancel(id);
}

void Session::on_disconnect() {
  gone_ = true;
  cancel_engine();
}

void Session::give_up(const ApiError& error) {
  if (error_ == nullptr) error_ = std::make_unique<ApiError>(error);
  cancel_engine();
}

void Session::abort() { give_up(ApiError(503, "The server is shutting down.", "", 1)); }

void Session::on_event(EngineEvent& event) {
  switch (event.kind) {
    case EngineEvent::Kind::kPrefill:
      if (record_.scheduled == 0) record_.scheduled = event.at;
      generation_.answer->on_prefill(event.prompt, event.cached_tokens);
      break;
    case EngineEvent::Kind::kPrompt:
      generation_.answer->on_prompt(event.prompt, *event.prompt_news);
      break;
    case EngineEvent::Kind::kToken:
      take_token(event);
      break;
    case EngineEvent::Kind::kFinish:
      take_finish(event);
      break;
  }
}

void Session::take_token(const EngineEvent& event) {
  ChoiceTimes& times = choices_[static_cast<size_t>(choice_of(event))];
  ++times.tokens;
  if (record_.scheduled == 0) record_.scheduled = event.at;
  if (record_.first_token == 0) record_.first_token = event.at;
  if (times.first == 0) {
    times.first = event.at;
    host_.metrics.time_to_first_token.observe(event.at - record_.arrived);
  } else {
    host_.metrics.inter_token_latency.observe(event.at - times.last);
  }
  times.last = record_.last_token = event.at;
  ++host_.metrics.generation_tokens_total;
  if (error_ != nullptr || gone_) return;
  begin();
  generation_.answer->on_token(choice_of(event), event.token, out_);
}

void Session::take_finish(const EngineEvent& event) {
  const int32_t choice = choice_of(event);
  ChoiceTimes& times = choices_[static_cast<size_t>(choice)];
  const FinishNews& news = *event.finish;
  times.finished = true;
  --unfinished_;
  --host_.choices;
  count_finish(news, times, event.choice == 0);
  if (news.reason == FinishReason::kRefused) {
    give_up(ApiError(400, news.message));
  } else if (news.reason == FinishReason::kError) {
    host_.failed = true;
    give_up(ApiError(500, news.message));
  } else if (news.reason == FinishReason::kAbort) {
    give_up(ApiError(503, "The request was cancelled.", "", 1));
  } else if (error_ == nullptr && !gone_) {
    begin();
    generation_.answer->on_finish(choice, news.reason, news.usage, out_);
  }
  if (unfinished_ == 0) complete();
}

void Session::count_finish(const FinishNews& news, const ChoiceTimes& times, bool first_choice) {
  ServerMetrics& metrics = host_.metrics;
  const Usage& usage = news.usage;
  const double now = now_seconds();
  ++metrics.finished[static_cast<size_t>(finished_as(news.reason))];
  record_.completion_tokens += usage.completion_tokens;
  metrics.generation_tokens.observe(static_cast<double>(usage.completion_tokens));
  metrics.e2e_latency.observe(now - record_.arrived);
  if (first_choice) {
    record_.prompt_tokens += usage.prompt_tokens;
    record_.cached_tokens += usage.cached_tokens;
    metrics.prompt_tokens_total += usage.prompt_tokens;
    metrics.cached_tokens_total += usage.cached_tokens;
    if (usage.encoder_replay) metrics.approximate_tokens_total += usage.cached_tokens;
    metrics.prompt_tokens.observe(static_cast<double>(usage.prompt_tokens));
    metrics.computed_prompt_tokens.observe(static_cast<double>(usage.prompt_tokens - usage.cached_tokens));
  }
  for (const ReplayPlan& plan : usage.plans)
    metrics.replay_rows_total += std::max<int64_t>(0, plan.resume - plan.start);
  if (record_.scheduled > 0) {
    metrics.queue_time.observe(record_.scheduled - record_.submitted);
    metrics.inference_time.observe(now - record_.scheduled);
  }
  if (times.first == 0) return;
  metrics.prefill_time.observe(times.first - record_.scheduled);
  metrics.decode_time.observe(times.last - times.first);
  if (times.tokens > 1) {
    metrics.time_per_output_token.observe((times.last - times.first) / static_cast<double>(times.tokens - 1));
  }
}

// The status of a stream is sent with its first token, so that everything before can still be an error of its own.
void Session::begin() {
  if (!generation_.stream || opened_) return;
  if (!began_) channel_.begin_stream();
  began_ = opened_ = true;
  generation_.answer->begin(out_);
}

void Session::flush() {
  if (out_.empty()) return;
  if (!gone_) channel_.write(out_);  // a reader that is too slow is reported by its connection
  out_.clear();
  last_write_ = now_seconds();
}

void Session::on_tick(double now) {
  if (done_ || gone_) return;
  if (deadline_ > 0 && now > deadline_ && error_ == nullptr) {
    give_up(ApiError(504, "The request took longer than the server allows."));
  }
  if (host_.keep_alive_seconds <= 0 || !generation_.stream || error_ != nullptr) return;
  if (now - std::max(last_write_, record_.arrived) < host_.keep_alive_seconds) return;
  if (!began_) channel_.begin_stream();
  began_ = true;
  out_ += kKeepAliveComment;
  flush();
}

void Session::complete() {
  if (done_) return;
  done_ = true;
  record_.ended = now_seconds();
  if (generation_.answer != nullptr && error_ == nullptr && !gone_) {
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) record_.finish += ',';
      record_.finish += generation_.answer->finish_reason(static_cast<int32_t>(i));
    }
  }
  if (gone_) {
    record_.status = kGoneStatus;
    record_.finish = "abort";
    return;
  }
  if (error_ != nullptr) record_.error = error_->what();
  if (began_) {
    if (error_ != nullptr) {
      generation_.answer->fail(*error_, out_);
    } else {
      generation_.answer->end(out_);
    }
    flush();
    channel_.end();
  } else if (error_ != nullptr) {
    channel_.refuse(*error_);
  } else {
    channel_.reply({.body = generation_.answer->body(), .headers = {}});
  }
  record_.status = channel_.status();
}

}  // namespace folio
