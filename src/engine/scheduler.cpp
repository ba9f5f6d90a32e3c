#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace folio {
namespace {

void remove(std::vector<RequestState*>& states, const RequestState* state) { std::erase(states, state); }

bool contains(const ScheduledStep& step, const RequestState& state) {
  return std::any_of(step.spans.begin(), step.spans.end(),
                     [&](const ScheduledSpan& span) { return span.state == &state; });
}

// The ids that a row has reported from all[first] on: fewer than `count` if fewer have a finite logit.
std::span<const TopLogprob> top_of(const TopLogprob* all, int64_t first, int32_t count) {
  if (count == 0) return {};
  while (count > 0 && all[first + count - 1].id < 0) --count;
  return {all + first, static_cast<size_t>(count)};
}

}  // namespace

Scheduler::Scheduler(const Geometry& geometry, BlockManager& blocks, const EngineConfig& config, int64_t max_model_len,
                     int32_t eos, int64_t max_head_rows, int64_t max_deltas)
    : geometry_(geometry),
      blocks_(blocks),
      config_(config),
      max_model_len_(max_model_len),
      eos_(eos),
      max_head_rows_(max_head_rows),
      max_deltas_(max_deltas),
      tail_fits_(config.max_num_batched_tokens >= geometry.inputs().window + config.max_num_seqs),
      dynamic_(config.profile != nullptr ? std::make_optional<DynamicVerification>(config.profile) : std::nullopt) {}

void Scheduler::submit(RequestId id, const std::shared_ptr<const Request>& request) {
  // Either all choices join or, when memory runs out, none.
  States fresh;
  for (int32_t choice = 0; choice < request->choices; ++choice) {
    fresh.push_back(std::make_unique<RequestState>(id, request, choice, geometry_.inputs().block_size));
    RequestState& state = *fresh.back();
    state.usage.prompt_tokens = state.prompt_length();
    state.usage.forced_acceptance = config_.forced_acceptance_length > 0;
    const bool replay = config_.decoder_replay && !state.wants_exact();
    state.decoder_start = replay ? decoder_tail_start(state.prompt_length(), geometry_.inputs().window) : 0;
    state.parent = choice > 0 ? fresh.front().get() : nullptr;
  }
  waiting_.push_back(fresh.front().get());
  states_.splice(states_.end(), fresh);
  stats_.submitted += request->choices;
}

void Scheduler::cancel(RequestId id) {
  for (const auto& state : states_) {
    if (state->id == id) state->cancelled = true;
  }
}

void Scheduler::cancel_all() {
  for (const auto& state : states_) state->cancelled = true;
}

void Scheduler::fail_all(const std::string& message) {
  for (const auto& state : states_) {
    if (state->status == RequestStatus::kFinished) continue;
    state->status = RequestStatus::kFinished;
    ++stats_.finished;
    state->request->sink->on_finish(state->choice, FinishReason::kError, state->usage, message);
  }
}

void Scheduler::reap_cancelled() {
  for (const auto& state : states_) {
    if (state->cancelled && state->status != RequestStatus::kFinished) finish(*state, FinishReason::kAbort);
  }
}

// A finished request stays as long as a step that has not come back names it.
void Scheduler::erase_finished() {
  states_.remove_if(
      [](const auto& state) { return state->status == RequestStatus::kFinished && state->spans_in_flight == 0; });
}

ScheduledStep Scheduler::schedule() {
  reap_cancelled();
  erase_finished();
  for (RequestState* state : running_) {
    // How far the state of a verification in flight has come is not known.
    if (config_.num_speculative_tokens == 0 || state->in_flight == 0) blocks_.keep_image(*state);
  }
  ScheduledStep step;
  int64_t budget = config_.max_num_batched_tokens;
  if (config_.mix_prefill_and_decode) {
    schedule_decodes(step, budget);
    schedule_prefills(step, budget);
    admit_waiting(step, budget);
  } else {
    schedule_prefills(step, budget);
    admit_waiting(step, budget);
    if (step.spans.empty()) schedule_decodes(step, budget);
  }
  choose_draft_width(step);
  for (const ScheduledSpan& span : step.spans) ++span.state->spans_in_flight;
  return step;
}

int64_t Scheduler::tokens_left(const RequestState& state) const {
  return std::min(state.request->max_tokens - state.generated(), max_model_len_ - std::ssize(state.tokens)) -
         state.in_flight;
}

// Drafts pay from the second token of a step on.
bool Scheduler::wants_drafts(const RequestState& state) const {
  return config_.num_speculative_tokens > 0 && tokens_left(state) > 2;
}

bool Scheduler::may_decode(const RequestState& state) const {
  if (state.status != RequestStatus::kRunning || state.cancelled) return false;
  const bool sampled_before = state.generated() + state.in_flight > 0;
  if (!sampled_before || state.rows_due() != 1 || tokens_left(state) <= 0) return false;
  // How far a verification gets is known when it is back.
  return state.in_flight == 0 || (!state.needs_host() && config_.num_speculative_tokens == 0);
}

void Scheduler::schedule_decodes(ScheduledStep& step, int64_t& budget) {
  // Preemption changes running_, so walk a copy.
  const std::vector<RequestState*> order = running_;
  std::vector<RequestState*> decoding;
  std::ranges::copy_if(order, std::back_inserter(decoding), [&](const auto* state) { return may_decode(*state); });
  plan_drafts(decoding);
  // Drafts take what is left when everybody has a row.
  int64_t others = std::ssize(decoding);
  for (RequestState* state : decoding) {
    if (!may_decode(*state) || budget == 0) continue;
    if (step.head_rows == max_head_rows_) return;
    --others;
    const int64_t room = std::max<int64_t>(1, std::min(budget, max_head_rows_ - step.head_rows) - others);
    const ScheduledSpan span = decode_span(*state, step, room);
    if (span.rows == 0) continue;
    if (!state->drafts.empty() && tokens_left(*state) > 1) stats_.speculation.add_length(span.drafts);
    step.spans.push_back(span);
    step.head_rows += span.rows;
    step.deltas += state->lists.deltas(state->generated() + state->in_flight, span.drafts);
    step.top = step.top || state->request->logprobs > 0;
    state->computed += span.rows;
    ++state->in_flight;
    step.rows += span.rows;
    budget -= span.rows;
    stats_.decode_rows += span.rows;
  }
}

void Scheduler::plan_drafts(const std::vector<RequestState*>& decoding) {
  if (!dynamic_) return;
  std::vector<std::span<const float>> confidences;
  size_t drafted = 0;
  for (const RequestState* state : decoding) {
    drafted = std::max(drafted, state->drafts.size());
    const auto usable = std::min(std::ssize(state->drafts), std::max<int64_t>(0, tokens_left(*state) - 1));
    confidences.push_back(std::span(state->confidences).first(static_cast<size_t>(usable)));
  }
  if (std::ranges::all_of(confidences, &std::span<const float>::empty)) return;
  const std::vector<int32_t> lengths = dynamic_->plan(confidences, static_cast<int32_t>(drafted));
  for (size_t i = 0; i < decoding.size(); ++i) decoding[i]->verify_length = lengths[i];
}

void Scheduler::choose_draft_width(ScheduledStep& step) {
  if (std::ranges::none_of(step.spans, &ScheduledSpan::drafting)) return;
  step.draft_width = dynamic_ ? dynamic_->next_width() : config_.num_speculative_tokens;
  if (step.draft_width > 0) return;
  for (ScheduledSpan& span : step.spans) span.drafting = false;
  ++stats_.speculation.skipped_steps;
}

ScheduledSpan Scheduler::decode_span(RequestState& state, const ScheduledStep& step, int64_t room) {
  ScheduledSpan span{.state = &state, .begin = state.computed, .samples = true, .decoding = state.in_flight > 0};
  if (step.deltas + state.lists.deltas(state.generated() + state.in_flight) > max_deltas_) return span;
  span.drafts = usable_drafts(state, step, room);
  // Nobody is preempted for drafts.
  if (span.drafts > 0 && !blocks_.grow(state, state.computed + 1 + span.drafts)) span.drafts = 0;
  if (!make_room(state, state.computed + 1, step)) {
    // It waits with what it has: the others end, or take it. One that has all there is never fits, which is said when
    // it comes to the head of the queue.
    const bool alone = running_.size() == 1 && blocks_.images().size() == 0;
    if (alone && state.spans_in_flight == 0) preempt(state);
    return span;
  }
  span.rows = 1 + span.drafts;
  span.drafting = wants_drafts(state);
  if (span.drafts > 0 && config_.forced_acceptance_length > 0) {
    const auto choice = static_cast<uint64_t>(state.id * kMaxChoices + state.choice);
    span.forced_accepts =
        ForcedAcceptance(config_.forced_acceptance_length).accepts(choice, state.generated(), span.drafts);
  }
  return span;
}

int32_t Scheduler::usable_drafts(const RequestState& state, const ScheduledStep& step, int64_t room) const {
  if (state.drafts.empty()) return 0;
  int64_t drafts = std::min({int64_t{state.verify_length}, tokens_left(state) - 1, room - 1});
  const int64_t block = geometry_.inputs().block_size, border = (state.computed / block + 1) * block;
  if (state.computed + 1 + drafts > border && blocks_.wants_image(state, border)) drafts = border - state.computed - 1;
  const auto count = static_cast<int32_t>(drafts);
  return step.deltas + state.lists.deltas(state.generated(), count) > max_deltas_ ? 0 : count;
}

void Scheduler::schedule_prefills(ScheduledStep& step, int64_t& budget) {
  const std::vector<RequestState*> order = running_;
  for (RequestState* state : order) {
    if (budget == 0) return;
    if (state->status != RequestStatus::kRunning || state->cancelled || state->in_flight > 0 || contains(step, *state))
      continue;
    const bool prefilling = state->generated() == 0 || state->rows_due() > 1;
    if (prefilling && state->rows_due() > 0) schedule_chunk(*state, step, budget);
  }
}

void Scheduler::admit_waiting(ScheduledStep& step, int64_t& budget) {
  while (!waiting_.empty() && budget > 0 && std::ssize(running_) < config_.max_num_seqs) {
    RequestState& state = *waiting_.front();
    if (state.spans_in_flight > 0) return;
    if (std::ssize(state.tokens) >= max_model_len_) {
      finish(state, FinishReason::kRefused,
             concat("the prompt has ", state.tokens.size(), " tokens and the context holds ", max_model_len_,
                    ": shorten it or raise --max-model-len"));
      continue;
    }
    if (const auto refusal = blocks_.refusal(state)) {
      finish(state, FinishReason::kRefused, *refusal);
      continue;
    }
    if (!blocks_.admit(state)) return;
    waiting_.pop_front();
    state.status = RequestStatus::kRunning;
    running_.push_back(&state);
    if (!schedule_chunk(state, step, budget)) return;
  }
}

// The parent stands before the last row of its prompt: its siblings take over its state as it is, or, if there is no
// room for that now, queue up on their own.
void Scheduler::fork_siblings(RequestState& parent) {
  for (const auto& owned : states_) {
    RequestState& child = *owned;
    if (child.parent != &parent || child.status != RequestStatus::kWaiting) continue;
    child.parent = nullptr;
    if (std::ssize(running_) < config_.max_num_seqs && blocks_.fork(parent, child)) {
      child.status = RequestStatus::kRunning;
      running_.push_back(&child);
    } else {
      waiting_.push_back(&child);
    }
  }
}

bool Scheduler::schedule_chunk(RequestState& state, ScheduledStep& step, int64_t& budget) {
  int64_t due = std::ssize(state.tokens) - state.computed;
  const bool has_siblings = std::any_of(states_.begin(), states_.end(), [&](const auto& other) {
    return other->parent == &state && other->status == RequestStatus::kWaiting;
  });
  if (has_siblings && due == 1) fork_siblings(state);
  if (has_siblings && due > 1) --due;
  const bool tail_together = tail_fits_ && state.decoder_start > 0 && !has_siblings && state.usage.preemptions == 0;
  const bool prompt_rows = state.request->wants_prompt_rows && state.computed < state.prompt_length();
  const int64_t heads = max_head_rows_ - step.head_rows;
  if (heads == 0) return false;
  const ChunkLimits limits{.budget = prompt_rows ? std::min(budget, heads) : budget,
                           .threshold = config_.long_prefill_token_threshold,
                           .tail = tail_together ? geometry_.inputs().window : 0,
                           .block = geometry_.inputs().block_size};
  const int64_t begin = state.computed;
  int64_t rows = chunk_rows(begin, due, limits);
  if (rows == 0) return false;
  rows = blocks_.cut(state, begin, begin + rows) - begin;
  const bool samples = begin + rows == std::ssize(state.tokens);
  const int64_t deltas = samples ? state.lists.deltas(state.generated()) : 0;
  if (step.deltas + deltas > max_deltas_) return false;
  if (!make_room(state, begin + rows, step)) return false;
  step.spans.push_back({.state = &state,
                        .begin = begin,
                        .rows = rows,
                        .samples = samples,
                        .prompt_rows = prompt_rows,
                        .drafting = samples && wants_drafts(state)});
  step.head_rows += prompt_rows ? rows : (samples ? 1 : 0);
  step.deltas += deltas;
  step.top = step.top || ((samples || prompt_rows) && state.request->logprobs > 0);
  state.computed += rows;
  state.in_flight += samples ? 1 : 0;
  step.rows += rows;
  budget -= rows;
  stats_.prefill_rows += rows;
  return true;
}

bool Scheduler::make_room(RequestState& state, int64_t end, const ScheduledStep& step) {
  while (!blocks_.grow(state, end)) {
    const auto victim = std::find_if(running_.rbegin(), running_.rend(), [&](const RequestState* other) {
      return other != &state && other->spans_in_flight == 0 && !contains(step, *other);
    });
    // Only requests that came later give way; an older one keeps what it has.
    if (victim == running_.rend() ||
        std::find(running_.begin(), running_.end(), *victim) < std::find(running_.begin(), running_.end(), &state)) {
      return false;
    }
    preempt(**victim);
  }
  return true;
}

void Scheduler::preempt(RequestState& state) {
  FOLIO_CHECK(state.spans_in_flight == 0);
  blocks_.preempt(state);
  state.status = RequestStatus::kWaiting;
  remove(running_, &state);
  waiting_.push_front(&state);
  ++stats_.preempted;
}

bool Scheduler::preempt_youngest() {
  const auto victim = std::find_if(running_.rbegin(), running_.rend(),
                                   [](const RequestState* state) { return state->spans_in_flight == 0; });
  if (victim == running_.rend()) return false;
  preempt(**victim);
  return true;
}

void Scheduler::reverse_running() { std::reverse(running_.begin(), running_.end()); }

void Scheduler::accept(const ScheduledStep& step, const StepSamples& samples) {
  int64_t head = 0, blocks = 0;
  for (size_t i = 0; i < step.spans.size(); ++i) {
    const ScheduledSpan& span = step.spans[i];
    RequestState& state = *span.state;
    --state.spans_in_flight;
    if (span.prompt_rows) {
      const int64_t given = span.rows - (span.samples ? 1 : 0);
      take_prompt_rows(state, samples, head, given);
      head += given;
    }
    if (state.generated() == 0 && state.status == RequestStatus::kRunning && !state.cancelled) {
      state.request->sink->on_prefill(state.choice, std::min(span.begin + span.rows, state.prompt_length()),
                                      state.usage);
    }
    if (!span.samples) {
      if (state.status == RequestStatus::kRunning) blocks_.computed(state, span.begin + span.rows);
      continue;
    }
    --state.in_flight;
    const int64_t committed = span.drafts > 0 ? samples.committed[i] : span.rows;
    state.computed -= span.rows - committed;
    judge_drafts(span, static_cast<int32_t>(committed - (span.rows - span.drafts)));
    take_samples(span, committed, samples, head);
    head += 1 + span.drafts;
    take_drafts(span, step.draft_width, samples, blocks);
    blocks += span.drafting ? 1 : 0;
  }
  reap_cancelled();
  erase_finished();
}

void Scheduler::judge_drafts(const ScheduledSpan& span, int32_t accepted) {
  RequestState& state = *span.state;
  if (dynamic_ && !state.confidences.empty()) dynamic_->judge(state.confidences, span.drafts, accepted);
  if (span.drafts == 0) return;
  stats_.speculation.add(span.drafts, accepted);
  state.usage.drafted_tokens += span.drafts;
  state.usage.accepted_tokens += accepted;
}

void Scheduler::take_drafts(const ScheduledSpan& span, int32_t width, const StepSamples& samples, int64_t block) {
  RequestState& state = *span.state;
  if (!span.drafting) width = 0;
  if (span.drafting) stats_.speculation.add_block(width);
  state.drafts.assign(samples.drafts + block * width, samples.drafts + (block + 1) * width);
  state.confidences.assign(samples.confidences + block * width, samples.confidences + (block + 1) * width);
  state.draft_candidates.clear();
  if (samples.candidates != nullptr) {
    const DraftCandidate* candidates = samples.candidates + block * width * kDraftCandidates;
    state.draft_candidates.assign(candidates, candidates + width * kDraftCandidates);
  }
  state.verify_length = width;
}

// The samples of the committed rows, of which `head` is the first, one by one: any may end the request.
void Scheduler::take_samples(const ScheduledSpan& span, int64_t committed, const StepSamples& samples, int64_t head) {
  RequestState& state = *span.state;
  const int64_t known = span.rows - span.drafts;  // rows up to the first that is sampled
  for (int64_t row = known; row <= committed && state.status != RequestStatus::kFinished; ++row, ++head) {
    // Before the sample: it may end the request, whose pages are then for others.
    if (state.status == RequestStatus::kRunning) blocks_.computed(state, span.begin + row);
    take_token(state, {.id = samples.ids[head],
                       .logprob = samples.logprobs[head],
                       .top = top_of(samples.top, head * kMaxTopLogprobs, state.request->logprobs)});
  }
}

void Scheduler::take_prompt_rows(RequestState& state, const StepSamples& samples, int64_t head, int64_t count) {
  PromptRows& rows = *state.prompt_rows;
  rows.logprobs.insert(rows.logprobs.end(), samples.logprobs + head, samples.logprobs + head + count);
  for (int64_t i = head; i < head + count && state.request->logprobs > 0; ++i) {
    const TopLogprob* top = samples.top + i * kMaxTopLogprobs;
    rows.top.insert(rows.top.end(), top, top + state.request->logprobs);
  }
}

void Scheduler::tell_prompt_rows(const RequestState& state) {
  const Request& request = *state.request;
  const PromptRows& rows = *state.prompt_rows;
  std::vector<TokenOutput> tokens;
  tokens.reserve(rows.logprobs.size());
  for (size_t i = 0; i < rows.logprobs.size(); ++i) {
    tokens.push_back({.id = request.prompt[i + 1],
                      .logprob = rows.logprobs[i],
                      .top = top_of(rows.top.data(), static_cast<int64_t>(i) * request.logprobs, request.logprobs)});
  }
  request.sink->on_prompt_logprobs(tokens);
}

void Scheduler::take_token(RequestState& state, const TokenOutput& token) {
  if (state.cancelled) return;
  const Request& request = *state.request;
  const int32_t id = token.id;
  state.tokens.push_back(id);
  state.lists.take(id);
  state.usage.completion_tokens = state.generated();
  if (request.wants_prompt_rows && state.generated() == 1) tell_prompt_rows(state);
  request.sink->on_token(state.choice, token);
  // The earliest reason in the order of spec runtime 3.11; all of them end with this token.
  TokenPolicy* policy = state.policy();
  const bool policy_stops = policy != nullptr && policy->accept(id) == PolicyVerdict::kStop;
  const bool stop_id = std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end();
  if (policy_stops || stop_id || (id == eos_ && !request.ignore_eos)) {
    finish(state, FinishReason::kStop);
  } else if (state.generated() >= request.max_tokens || std::ssize(state.tokens) >= max_model_len_) {
    finish(state, FinishReason::kLength);
  }
}

void Scheduler::finish(RequestState& state, FinishReason reason, const std::string& message) {
  FOLIO_CHECK(state.status != RequestStatus::kFinished);
  blocks_.release(state);
  std::erase(waiting_, &state);
  remove(running_, &state);
  state.status = RequestStatus::kFinished;
  for (const auto& other : states_) {
    if (other->parent != &state || other->status != RequestStatus::kWaiting) continue;
    other->parent = nullptr;
    waiting_.push_back(other.get());
  }
  ++stats_.finished;
  stats_.aborted += reason == FinishReason::kAbort ? 1 : 0;
  stats_.refused += reason == FinishReason::kRefused ? 1 : 0;
  state.request->sink->on_finish(state.choice, reason, state.usage, message);
}

}  // namespace folio
