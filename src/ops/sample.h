// Drawing the next token (spec protocol 5.12).
//
// A row's logits go through, in this order: mask and biases, repetition penalty, presence and frequency penalties,
// temperature, min_p, top_k, top_p, and one draw. Log-probabilities, of the sample and of the most likely ids, are
// those of the softmax of the unmodified logits: before all of that.
//
// Every draw has a uniform number of its own, from (seed, position, kind of draw). A row that checks a draft by ratio
// acceptance (spec/model.md 9.4 b, engine/speculation.h) draws otherwise and from the same distribution: with p what is
// left of the row and q the distribution from which the draft d was drawn, it takes d with probability min(1, p(d) /
// q(d)), and else draws from max(p - q, 0).
#pragma once

#include <cstdint>

#include "ops/rows.h"

namespace folio {

// Below this temperature sampling is greedy.
constexpr float kGreedyTemperature = 1e-5f;
// Most likely ids that a row may report.
constexpr int32_t kMaxTopLogprobs = 20;

struct SamplingParams {
  float temperature = 1;  // below kGreedyTemperature: the largest logit, lowest id on ties
  int32_t top_k = 0;      // this many most likely tokens, lower ids first among equals; 0 or -1 = all
  float top_p = 1;        // smallest set of most likely tokens whose probability, of what is left, reaches this
  float min_p = 0;        // drops tokens less likely than this share of the most likely one
  uint64_t seed = 0;      // the draw of a position depends on (seed, position) alone
  int32_t forced = -1;    // not -1: this id is taken, for its log-probability
};

// An addition to the logit of an id; -infinity bans it.
struct LogitDelta {
  int32_t id = 0;
  float delta = 0;
};

struct TopLogprob {
  int32_t id = -1;
  float logprob = 0;
};

// Most ids that the distribution of a drawn draft has.
constexpr int32_t kDraftCandidates = 64;

// An id of such a distribution. The probabilities of all of them add up to 1 but for rounding; who uses them divides by
// their sum.
struct DraftCandidate {
  int32_t id = -1;
  float probability = 0;
};

// What a row does beside SamplingParams.
struct LogitRules {
  int32_t first_delta = 0;       // its part of SampleLists::deltas: biases, then penalties
  int32_t num_biases = 0;        // added before the repetition penalty
  int32_t num_penalties = 0;     // added after it
  int32_t mask = -1;             // row of SampleLists::bitsets with the ids that may be drawn; -1 = all
  int32_t seen = -1;             // row of SampleLists::bitsets with the ids that repetition_penalty is for; -1 = none
  float repetition_penalty = 1;  // a positive logit is divided by it, another multiplied
  int32_t top = 0;               // most likely ids to report, up to kMaxTopLogprobs
  // Ratio acceptance; greedy rows and rows with a forced id ignore it.
  int32_t draft = -1;           // the draft that the row checks; -1 = none
  int32_t first_candidate = 0;  // its distribution: part of SampleLists::candidates, at least one, the draft among them
  int32_t num_candidates = 0;

  bool change_logits() const { return num_biases + num_penalties > 0 || mask >= 0 || seen >= 0; }
};

struct SampleLists {
  const LogitRules* rules = nullptr;           // [num_rows]; null: no row has any
  const LogitDelta* deltas = nullptr;          // of all rows
  const uint64_t* bitsets = nullptr;           // [any, bitset_words]: bit i % 64 of word i / 64 is id i
  int64_t bitset_words = 0;                    // at least vocab / 64, rounded up
  const DraftCandidate* candidates = nullptr;  // of all rows that check a draft by ratio acceptance
};

// NaN logits count as -infinity. Ids of logit -infinity are drawn only if there is no other: then, and if the rules
// leave nothing, the sample is the id of the largest unmodified logit.
struct SampleArgs {
  const float* logits = nullptr;  // [num_rows, vocab]
  int64_t vocab = 0;
  int32_t num_rows = 0;                    // head rows
  const int32_t* head_rows = nullptr;      // [num_rows] row of the step
  const int32_t* positions = nullptr;      // [rows of the step]
  const SamplingParams* params = nullptr;  // [num_rows]
  SampleLists lists;
  int32_t* sampled = nullptr;  // out [num_rows]
  float* logprobs = nullptr;   // out [num_rows] log-probability of the sample under the unmodified logits
  // out [num_rows, kMaxTopLogprobs], read by rows whose rules ask for it: their `top` most likely ids under the
  // unmodified logits, most likely first, lower ids first among equals; id -1 behind the last finite one.
  TopLogprob* top = nullptr;
};

}  // namespace folio
