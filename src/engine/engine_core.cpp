#include "engine/engine_core.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "engine/hidden_rows.h"

namespace folio {
namespace {

EngineConfig checked(const EngineConfig& config, ModelRunner& runner) {
  if (config.max_num_seqs > runner.options().max_num_seqs ||
      config.max_num_batched_tokens > runner.options().max_rows) {
    fail(ErrorCode::kInvalidArgument, "the model runner has room for fewer requests or rows");
  }
  if (config.num_speculative_tokens != runner.options().num_speculative_tokens) {
    fail(ErrorCode::kInvalidArgument, "the model runner was made for ", runner.options().num_speculative_tokens,
         " speculative tokens, not for ", config.num_speculative_tokens);
  }
  return resolve(config, runner.config(), runner.topology(), runner.geometry());
}

}  // namespace

EngineCore::EngineCore(ModelRunner& runner, const EngineConfig& config)
    : runner_(runner),
      config_(checked(config, runner)),
      blocks_(runner.device(), runner.geometry(), runner.pages(), runner.states(), config_,
              runner.config().engram_layer_ids.empty() ? 0 : runner.config().engram_max_ngram_size - 1),
      scheduler_(runner.geometry(), blocks_, config_, runner.max_model_len(), runner.config().eos_token_id,
                 runner.options().max_head_rows, runner.builder().delta_room()) {}

void EngineCore::submit(RequestId id, const std::shared_ptr<const Request>& request) {
  check_request(*request, runner_.config());
  scheduler_.submit(id, request);
}

bool EngineCore::step() {
  const auto in_model = [&] { return stats_.run_seconds + stats_.draft_seconds; };
  const double begin = now_seconds(), before = in_model();
  const bool worked = advance();
  stats_.host_seconds += now_seconds() - begin - (in_model() - before);
  return worked;
}

bool EngineCore::advance() {
  ScheduledStep scheduled = scheduler_.schedule();
  CopyPlan copies;
  blocks_.copies().drain(copies);
  if (scheduled.spans.empty()) {
    const bool copied = !copies.empty();
    run(copies, nullptr);
    if (in_flight_.empty()) return copied;
    accept_oldest();
    return true;
  }
  ++stats_.steps;
  StepBuilder& builder = runner_.builder(turn_);
  turn_ = (turn_ + 1) % ModelRunner::kBuilders;
  build(scheduled, builder);
  const Step step = builder.step();
  HiddenRows hidden(scheduled);
  const double before = stats_.run_seconds;
  const StepOutputs outputs = run(copies, &step, hidden.wanted() ? &hidden : nullptr);
  const bool verifies = std::ranges::any_of(scheduled.spans, [](const ScheduledSpan& s) { return s.drafts > 0; });
  if (verifies) stats_.verify_seconds += stats_.run_seconds - before;
  const DraftOutputs drafts = draft(step);
  // A device would download these behind the step; the host looks at them when the step is taken back.
  InFlight flight{.step = std::move(scheduled),
                  .sampled = {},
                  .logprobs = {},
                  .top = {},
                  .committed = {},
                  .drafts = {},
                  .confidences = {},
                  .candidates = {}};
  if (flight.step.head_rows > 0) {
    flight.sampled.assign(outputs.sampled, outputs.sampled + flight.step.head_rows);
    flight.logprobs.assign(outputs.logprobs, outputs.logprobs + flight.step.head_rows);
    flight.committed.assign(outputs.committed, outputs.committed + flight.step.spans.size());
    if (flight.step.top) flight.top.assign(outputs.top, outputs.top + flight.step.head_rows * kMaxTopLogprobs);
  }
  flight.drafts.assign(drafts.tokens, drafts.tokens + step.draft.rows());
  flight.confidences.assign(drafts.confidences, drafts.confidences + step.draft.rows());
  if (drafts.candidates != nullptr) {
    flight.candidates.assign(drafts.candidates, drafts.candidates + step.draft.rows() * kDraftCandidates);
  }
  in_flight_.push_back(std::move(flight));
  if (std::ssize(in_flight_) >= config_.depth) accept_oldest();
  return true;
}

StepOutputs EngineCore::run(const CopyPlan& copies, const Step* step, TraceSink* trace) {
  const double begin = now_seconds();
  StepOutputs outputs;
  if (step != nullptr) {
    outputs = runner_.run(copies, *step, trace);
  } else {
    runner_.run(copies);
  }
  blocks_.copies().complete();
  stats_.run_seconds += now_seconds() - begin;
  return outputs;
}

DraftOutputs EngineCore::draft(const Step& step) {
  const double begin = now_seconds();
  const DraftOutputs outputs = runner_.draft(step);
  stats_.draft_seconds += now_seconds() - begin;
  return outputs;
}

void EngineCore::abort_all() {
  scheduler_.cancel_all();
  while (!empty()) step();
}

void EngineCore::accept_oldest() {
  const InFlight done = std::move(in_flight_.front());
  in_flight_.pop_front();
  scheduler_.accept(done.step, {.ids = done.sampled.data(),
                                .logprobs = done.logprobs.data(),
                                .top = done.step.top ? done.top.data() : nullptr,
                                .committed = done.committed.data(),
                                .drafts = done.drafts.data(),
                                .confidences = done.confidences.data(),
                                .candidates = done.candidates.empty() ? nullptr : done.candidates.data()});
}

void EngineCore::build(const ScheduledStep& step, StepBuilder& builder) const {
  builder.clear();
  if (step.draft_width > 0) builder.set_draft_width(step.draft_width);
  for (const ScheduledSpan& span : step.spans) {
    builder.add_request(request_span(span), span.state->pages);
    span.state->restart = false;
    add_rows(span, builder);
    if (!span.drafting) continue;
    if (config_.acceptance == Acceptance::kRatio) {
      builder.add_draft(span.state->sampling);
    } else {
      builder.add_draft();
    }
  }
}

RequestSpan EngineCore::request_span(const ScheduledSpan& span) const {
  const RequestState& state = *span.state;
  RequestSpan rows{.slot = state.slot};
  rows.window_floor = static_cast<int32_t>(state.window_floor);
  rows.decoder_start = static_cast<int32_t>(state.decoder_start);
  rows.write_from = static_cast<int32_t>(state.write_from);
  rows.num_drafts = span.drafts;
  rows.forced_accepts = span.forced_accepts;
  if (!state.restart) return rows;
  rows.restart = 1;
  rows.start = static_cast<int32_t>(span.begin);
  for (int64_t lag = 0; lag < std::min<int64_t>(kMaxEngramHistory, span.begin); ++lag) {
    rows.history[lag] = state.tokens[static_cast<size_t>(span.begin - 1 - lag)];
  }
  return rows;
}

void EngineCore::add_rows(const ScheduledSpan& span, StepBuilder& builder) const {
  if (span.drafts > 0) return add_drafted_rows(span, builder);
  const RequestState& state = *span.state;
  for (int64_t p = span.begin; p < span.begin + span.rows; ++p) {
    const RowInput input = span.decoding ? RowInput{.source = RowSource::kLastToken, .value = 0}
                                         : RowInput{.value = state.tokens[static_cast<size_t>(p)]};
    builder.add_row(input, false, p >= state.decoder_start);
    const bool last = p + 1 == span.begin + span.rows;
    if (span.samples && last) {
      builder.add_sampled_row(state.sampling);
      state.lists.add_to(builder, p + 1 - state.prompt_length(), runner_.config().eos_token_id, state.policy());
    } else if (span.prompt_rows) {
      builder.add_sampled_row({.forced = state.tokens[static_cast<size_t>(p + 1)]}, false);
      if (state.request->logprobs > 0) builder.report_top(state.request->logprobs);
    }
  }
}

void EngineCore::add_drafted_rows(const ScheduledSpan& span, StepBuilder& builder) const {
  const RequestState& state = *span.state;
  TokenPolicy* policy = state.policy() != nullptr && state.policy()->masks() ? state.policy() : nullptr;
  LogitLists lists = state.lists;
  int32_t told = 0;
  bool stopped = false;
  for (int32_t i = 0; i <= span.drafts; ++i) {
    int32_t id = state.tokens.back();
    if (i > 0) {
      id = state.drafts[static_cast<size_t>(i - 1)];
      lists.take(id);
      if (policy != nullptr && !stopped) {
        stopped = policy->accept(id) == PolicyVerdict::kStop;
        ++told;
      }
    }
    builder.add_row({.value = id});
    builder.add_sampled_row(state.sampling);
    // Behind a draft that ends the request nothing is asked any more.
    lists.add_to(builder, state.generated() + i, runner_.config().eos_token_id, stopped ? nullptr : policy);
    if (i < span.drafts) add_ratio(state, i, builder);
  }
  if (told > 0) policy->rollback(told);
}

// Draft i of the request, if it was drawn, is checked by the row added last.
void EngineCore::add_ratio(const RequestState& state, int32_t i, StepBuilder& builder) const {
  if (state.draft_candidates.empty()) return;
  const auto all =
      std::span(state.draft_candidates).subspan(static_cast<size_t>(i * kDraftCandidates), kDraftCandidates);
  const auto end = std::ranges::find(all, -1, &DraftCandidate::id);
  if (end == all.begin()) return;
  builder.add_ratio(state.drafts[static_cast<size_t>(i)], {all.begin(), end});
}

}  // namespace folio
