// What the engine is asked to do, and how it answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/images.h"
#include "ops/hyper.h"
#include "ops/sample.h"
#include "tokenizer/token_policy.h"

namespace folio {

struct Config;

enum class FinishReason : uint8_t {
  kLength,   // max_tokens, or the context is full
  kStop,     // end of sentence, a stop id, or the policy
  kAbort,    // cancelled, or the engine shut down
  kRefused,  // could not be scheduled; the message says why
  kError,    // the engine failed; the message says why
};
std::string_view finish_reason_name(FinishReason reason);

// Bounded replay makes a run depend on where it resumed and where its decoder began; two runs with equal plans have
// equal bits (docs/adr).
struct ReplayPlan {
  int64_t start = 0;          // S: first position that ran
  int64_t resume = 0;         // R: positions before it were in shared pages
  int64_t decoder_start = 0;  // s: first position that the decoder layers ran
  int64_t known = 0;          // tokens that it began with: the prompt, and what had been generated before a preemption
  bool operator==(const ReplayPlan&) const = default;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;    // of the prompt, taken from the prefix cache
  bool encoder_replay = false;  // the hit was taken by encoder replay: results are close to a cold run's, not equal
  int32_t preemptions = 0;
  int64_t drafted_tokens = 0;      // that were verified
  int64_t accepted_tokens = 0;     // of these
  bool forced_acceptance = false;  // drafts are accepted whatever was sampled: the text means nothing
  std::vector<ReplayPlan> plans;   // one for the first run and one for each after a preemption
};

// A token of the output or of the prompt with its log-probability under the model's unmodified logits.
struct TokenOutput {
  int32_t id = 0;
  float logprob = 0;
  // The most likely ids at its position, as many as the request asks for, most likely first; they need not include the
  // token. Valid during the call.
  std::span<const TopLogprob> top;
};

// Receives one choice's tokens in order, then one finish; never again after that. Called by the engine's thread: it
// must not block, must not throw, and of the engine may call cancel() alone.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_token(int32_t choice, const TokenOutput& token) = 0;
  // `message` is empty unless the request was refused or the engine failed.
  virtual void on_finish(int32_t choice, FinishReason reason, const Usage& usage, const std::string& message) = 0;
  // The prompt's tokens 1 .. n-1, for requests that want prompt rows; before the first token.
  virtual void on_prompt_logprobs(std::span<const TokenOutput> tokens) { static_cast<void>(tokens); }
  // Rows of one of the request's hidden_rows, [rows, hidden_size], of the prompt's positions from `position` on; valid
  // during the call. Positions ascend; after a preemption they may begin anew, with the same bits.
  virtual void on_hidden_rows(const std::string& tensor, int64_t position, std::span<const bf16> rows) {
    static_cast<void>(tensor), static_cast<void>(position), static_cast<void>(rows);
  }
  // The first `done` tokens of the prompt have run; called before the first token, again after a preemption. Of `usage`
  // is known what the prefix cache gave.
  virtual void on_prefill(int32_t choice, int64_t done, const Usage& usage) {
    static_cast<void>(choice), static_cast<void>(done), static_cast<void>(usage);
  }
};

constexpr int32_t kMaxChoices = 128;
constexpr int64_t kMaxLogitBias = 1024;
constexpr int64_t kMaxStopIds = 1024;

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  // In the order in which they act, before the temperature (spec protocol 5.12).
  std::vector<LogitDelta> logit_bias;  // added to the logits of these ids, -100 to 100 each
  float repetition_penalty = 1;        // above 0; positive logits of ids in prompt or output are divided by it, others
                                       // multiplied
  float frequency_penalty = 0;         // -2 to 2, times the number of times that an id is in the output
  float presence_penalty = 0;          // -2 to 2, for the ids that are in the output
  int32_t logprobs = 0;                // most likely ids to report with each token, up to kMaxTopLogprobs
  int64_t min_tokens = 0;              // so many tokens before an end of sentence or a stop id may come
  int64_t max_tokens = 128;
  std::vector<int32_t> stop_ids;  // beside the end of sentence; the stop token is part of the output; kMaxStopIds
  bool ignore_eos = false;
  int32_t choices = 1;     // n, at most kMaxChoices: siblings that share the prompt; choice i samples with seed + i
  bool exact = false;      // no decoder replay, prefix hits only where they are exact
  std::string cache_salt;  // pages are shared among requests with equal salts alone
  bool wants_prompt_rows = false;  // every prompt row through the head; implies exact, reads no prefix
  // Hidden states of the prompt to report (hidden_rows.h): "tap.L", the mean over the streams of what enters layer L,
  // and "hidden", what the head's norm sees. Implies exact, reads no prefix; with one choice only.
  std::vector<std::string> hidden_rows;
  std::vector<std::shared_ptr<TokenPolicy>> policies;  // none, or one per choice
  std::shared_ptr<Sink> sink;

  // Every row of the prompt runs in every layer.
  bool needs_every_row() const { return wants_prompt_rows || !hidden_rows.empty(); }
};

// Throws Error(kInvalidArgument) for an empty prompt or an id outside the vocabulary.
void check_tokens(std::span<const int32_t> prompt, const Config& config);

// Throws Error(kInvalidArgument) for an empty prompt, an id outside the vocabulary, or a prompt that leaves no room for
// a token in a context of `max_model_len` tokens.
void check_prompt(std::span<const int32_t> prompt, const Config& config, int64_t max_model_len);

// Throws Error(kInvalidArgument), naming the field, for sampling parameters, penalties, biases or logprobs outside
// their range.
void check_sampling(const Request& request, int64_t vocab);

// Throws Error(kInvalidArgument) for a request that makes no sense, whatever the engine's state: no sink, a bad prompt,
// limits or sampling parameters outside their range, policies that do not match its choices.
void check_request(const Request& request, const Config& config);

}  // namespace folio
