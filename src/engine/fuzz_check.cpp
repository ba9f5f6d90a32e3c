#include "engine/fuzz_check.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/fuzz_case.h"

namespace folio {
namespace {

bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

bool ended(const RecordedAnswer& answer) {
  return answer.reason == FinishReason::kStop || answer.reason == FinishReason::kLength;
}

bool same_top(const TopLogprob& a, const TopLogprob& b) { return a.id == b.id && same_bits(a.logprob, b.logprob); }

// The policy of a choice that has given the tokens `before` already, or null.
std::shared_ptr<TokenPolicy> fresh_policy(const Request& request, int32_t choice, std::span<const int32_t> before) {
  if (request.policies.empty()) return nullptr;
  auto policy = dynamic_cast<const CountingPolicy&>(*request.policies[static_cast<size_t>(choice)]).fresh();
  for (const int32_t id : before) policy->accept(id);
  return policy;
}

// The rules that end an answer.
std::function<bool(int32_t)> stop_rule(const Request& request, int32_t eos,
                                       const std::shared_ptr<TokenPolicy>& policy) {
  return [&request, eos, policy](int32_t id) {
    const bool policy_stops = policy != nullptr && policy->accept(id) == PolicyVerdict::kStop;
    return policy_stops || (id == eos && !request.ignore_eos) ||
           std::ranges::find(request.stop_ids, id) != request.stop_ids.end();
  };
}

}  // namespace

std::string AnswerCheck::name(const RunRecord& run) const {
  return concat("request ", run.id, " choice ", run.choice, " (start ", run.plan.start, ", resume ", run.plan.resume,
                ", decoder start ", run.plan.decoder_start, ", ", run.tokens.size(), " tokens known)");
}

void AnswerCheck::check(const std::vector<SentRequest>& sent) {
  for (size_t run = 0; run < recorder_.runs().size(); ++run) {
    const auto owner =
        std::ranges::find_if(sent, [&](const SentRequest& s) { return s.id == recorder_.runs()[run].id; });
    FOLIO_CHECK(owner != sent.end());
    check_run(*owner, run);
  }
  for (const SentRequest& request : sent) {
    for (int32_t choice = 0; choice < request.sink->choices(); ++choice) check_request(request, choice);
  }
}

void AnswerCheck::check_request(const SentRequest& sent, int32_t choice) {
  const RecordedAnswer& answer = sent.sink->answer(choice);
  const auto runs = recorder_.runs_of(sent.id, choice);
  const auto differs = [&](const auto&... parts) {
    differences_.push_back(concat("request ", sent.id, " choice ", choice, ": ", parts...));
  };
  if (answer.finishes != 1) differs("finished ", answer.finishes, " times");
  if (sent.sink->talked_on()) differs("a token or a finish came after the finish");
  if (answer.finishes == 0) return;
  if (answer.reason == FinishReason::kAbort && !sent.cancelled) differs("aborted, but nobody cancelled it");
  if (runs.empty() && !answer.tokens.empty()) differs(answer.tokens.size(), " tokens without a run");
  if (runs.empty() && ended(answer)) differs("finished without a run");
  if (answer.usage.prompt_tokens != std::ssize(sent.request->prompt)) differs("usage has a wrong prompt length");
  if (answer.usage.completion_tokens != std::ssize(answer.tokens)) differs("usage has a wrong answer length");
  for (const size_t index : runs) {
    const ReplayPlan& plan = recorder_.runs()[index].plan;
    if ((sent.request->exact || sent.request->wants_prompt_rows) &&
        (replays_encoder(plan) || plan.decoder_start != 0)) {
      differs("an exact request was replayed");
    }
    if (sent.request->wants_prompt_rows && plan.resume > 0) differs("a request for prompt rows resumed behind a hit");
  }
}

void AnswerCheck::check_run(const SentRequest& sent, size_t index) {
  const RunRecord& run = recorder_.runs()[index];
  const Request& request = *sent.request;
  const RecordedAnswer& answer = sent.sink->answer(run.choice);
  const auto runs = recorder_.runs_of(run.id, run.choice);
  const bool last = runs.back() == index;
  const int64_t prompt = std::ssize(request.prompt), known = std::ssize(run.tokens), before = known - prompt;
  const int64_t until = last ? std::ssize(answer.tokens)
                             : std::ssize(recorder_.runs()[*std::next(std::ranges::find(runs, index))].tokens) - prompt;
  const int64_t most = std::min(request.max_tokens, options_.max_model_len - prompt) - before;
  const bool to_the_end = last && ended(answer);
  if (until == before && run.published.empty() && !to_the_end) return;

  const auto policy = fresh_policy(request, run.choice, std::span(answer.tokens).first(static_cast<size_t>(before)));
  SoloRun alone{.tokens = run.tokens,
                .prompt_length = prompt,
                .plan = run.plan,
                .shared = {},
                .request = &request,
                .choice = run.choice,
                .policy = policy.get(),
                // One that was cancelled may have run the row of its last token.
                .samples = to_the_end ? most : std::clamp<int64_t>(until - before + (last ? 1 : 0), 1, most),
                .stops = [&, rule = stop_rule(request, options_.eos, policy)](int32_t id) {
                  const bool stop = rule(id);
                  return stop && to_the_end;
                }};
  if (replays_encoder(run.plan)) {
    for (const RunRecord::PageOrigin& origin : run.shared) {
      const std::vector<PageBytes>& pages = results_[origin.run].pages;
      if (origin.block >= std::ssize(pages)) {
        differences_.push_back(concat(name(run), ": hit block ", origin.block, ", which its run never filled"));
        return;
      }
      alone.shared.push_back(&pages[static_cast<size_t>(origin.block)]);
    }
    if (std::ssize(alone.shared) != solo_.runner().geometry().pages_for(run.plan.resume)) return;  // reported already
  }
  results_[index] = solo_.run(alone);
  ++runs_;
  check_tokens(sent, index, results_[index]);
  if (!options_.compare_pages) return;
  for (const RunRecord::PublishedBlock& block : run.published) {
    ++pages_;
    const std::vector<PageBytes>& pages = results_[index].pages;
    if (block.block < std::ssize(pages) && pages[static_cast<size_t>(block.block)] == block.bytes) continue;
    differences_.push_back(
        concat(name(run), ": published block ", block.block, " with other bytes than the solo run's"));
  }
}

void AnswerCheck::check_tokens(const SentRequest& sent, size_t index, const SoloResult& alone) {
  const RunRecord& run = recorder_.runs()[index];
  const Request& request = *sent.request;
  const RecordedAnswer& answer = sent.sink->answer(run.choice);
  const auto runs = recorder_.runs_of(run.id, run.choice);
  const bool last = runs.back() == index;
  const auto differs = [&](const auto&... parts) { differences_.push_back(concat(name(run), ": ", parts...)); };
  const int64_t prompt = std::ssize(request.prompt), before = std::ssize(run.tokens) - prompt;
  const int64_t until = last ? std::ssize(answer.tokens)
                             : std::ssize(recorder_.runs()[*std::next(std::ranges::find(runs, index))].tokens) - prompt;
  if (until > std::ssize(answer.tokens)) return differs("knew ", until, " tokens, told ", answer.tokens.size());
  const auto stops =
      stop_rule(request, options_.eos,
                fresh_policy(request, run.choice, std::span(answer.tokens).first(static_cast<size_t>(before))));
  const auto top_n = static_cast<size_t>(request.logprobs);
  for (int64_t i = before; i < until; ++i) {
    const auto at = static_cast<size_t>(i), mine = static_cast<size_t>(i - before);
    if (mine >= alone.tokens.size()) return differs("went on after token ", i, ", the last of the solo run");
    ++tokens_;
    if (answer.tokens[at] != alone.tokens[mine]) {
      return differs("token ", i, " is ", answer.tokens[at], ", alone ", alone.tokens[mine]);
    }
    if (!same_bits(answer.logprobs[at], alone.logprobs[mine])) {
      return differs("log-probability of token ", i, " is ", answer.logprobs[at], ", alone ", alone.logprobs[mine]);
    }
    if (!std::ranges::equal(std::span(answer.top).subspan(at * top_n, top_n),
                            std::span(alone.top).subspan(mine * top_n, top_n), same_top)) {
      return differs("most likely ids at token ", i, " differ");
    }
    const bool stopped = stops(answer.tokens[at]);
    if (stopped && (i + 1 < until || !last)) return differs("went on after token ", i, ", which stops it");
    if (last && i + 1 == until && ended(answer) && stopped != (answer.reason == FinishReason::kStop)) {
      return differs("ends as ", finish_reason_name(answer.reason));
    }
  }
  if (last && ended(answer) && until - before != std::ssize(alone.tokens)) {
    return differs("ends after ", until, " tokens, alone after ", before + std::ssize(alone.tokens));
  }
  if (request.wants_prompt_rows && before == 0 && until > 0) {
    if (!std::ranges::equal(sent.sink->prompt_logprobs(), alone.prompt_logprobs, same_bits)) {
      differs("log-probabilities of the prompt differ (", sent.sink->prompt_logprobs().size(), " of them, alone ",
              alone.prompt_logprobs.size(), ")");
    }
    if (!std::ranges::equal(sent.sink->prompt_top(), alone.prompt_top, same_top)) {
      differs("most likely ids of the prompt differ");
    }
  }
}

}  // namespace folio
