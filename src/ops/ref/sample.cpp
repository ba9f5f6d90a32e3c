#include "ops/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/sample_row.h"

namespace folio {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The kinds of draws of a position. A position may be drafted in blocks that begin at different places: each has its
// own number, so that none depends on what became of another block.
enum DrawKind : uint64_t { kSampleDraw = 0, kAcceptDraw = 1, kResidualDraw = 2, kDraftDraw = 16 };

double uniform_of(const SamplingParams& params, int32_t position, uint64_t kind) {
  return random_uniform(params.seed, static_cast<uint64_t>(position), kind);
}

// Lower id first among equals.
bool more_likely(const SampleCandidate& a, const SampleCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// exp((logit - top) / temperature); 1 for the top even if that is infinite.
double relative(float logit, float top, float temperature) {
  if (logit == top) return 1;
  if (!(logit > -kInfinity)) return 0;
  return std::exp((static_cast<double>(logit) - static_cast<double>(top)) / static_cast<double>(temperature));
}

int32_t largest(const float* logits, int64_t vocab) {
  int32_t best = 0;
  float top = -kInfinity;
  for (int32_t id = 0; id < vocab; ++id) {
    if (logits[id] > top) top = logits[best = id];
  }
  return best;
}

LogSum log_sum(const float* logits, int64_t vocab) {
  LogSum sum{.best = largest(logits, vocab)};
  sum.top = std::isnan(logits[sum.best]) ? -kInfinity : logits[sum.best];
  sum.total = 0;
  for (int64_t id = 0; id < vocab; ++id) sum.total += relative(logits[id], sum.top, 1);
  sum.total = std::max(sum.total, 1.0);
  return sum;
}

// Moves the `count` most likely ids with a logit above -infinity to the front of `out`; returns how many there are.
int64_t select_top(const float* logits, int64_t vocab, int64_t count, SampleCandidate* out) {
  // Twice as many as asked for are collected before the lower half is given up, which raises the bar.
  const int64_t room = std::min(2 * count, vocab);
  float bar = -kInfinity;
  int64_t n = 0;
  for (int32_t id = 0; id < vocab; ++id) {
    if (!(logits[id] > bar)) continue;
    out[n++] = {.logit = logits[id], .weight = 0, .id = id};
    if (n < room) continue;
    std::nth_element(out, out + count - 1, out + n, more_likely);
    n = count;
    bar = out[count - 1].logit;
  }
  if (n > count) std::nth_element(out, out + count - 1, out + n, more_likely);
  return std::min(n, count);
}

double weight_of(const SampleCandidate* candidates, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += static_cast<double>(candidates[i].weight);
  return sum;
}

// Moves the smallest set of most likely candidates whose weight reaches `target` to the front; returns its size. Cuts
// the range in which the set ends in half until one candidate is left: linear in n.
int64_t select_mass(SampleCandidate* candidates, int64_t n, double target) {
  int64_t begin = 0, end = n;  // the weight before `begin` is short of the target, that before `end` reaches it
  double before = 0;
  while (end - begin > 1) {
    const int64_t middle = begin + (end - begin) / 2;
    std::nth_element(candidates + begin, candidates + middle, candidates + end, more_likely);
    const double half = weight_of(candidates, begin, middle);
    if (before + half >= target) {
      end = middle;
    } else {
      before += half;
      begin = middle;
    }
  }
  return end;
}

// Sets to zero the weights that top_k and top_p drop. Weights below min_p are zero already.
void filter(const SamplingParams& params, const float* logits, int64_t vocab, const SampleScratch& scratch) {
  SampleCandidate* candidates = scratch.candidates;
  int64_t n = 0;
  double mass = 0;
  if (params.top_k > 0 && params.top_k < vocab) {
    const int64_t found = select_top(logits, vocab, params.top_k, candidates);
    for (int64_t i = 0; i < found; ++i) {
      const float weight = scratch.weights[candidates[i].id];
      if (!(weight > 0)) continue;
      candidates[n] = candidates[i];
      candidates[n++].weight = weight;
    }
    mass = weight_of(candidates, 0, n);
  } else {
    // The most likely id weighs 1, so all ids below this together weigh less than what top_p may leave out.
    const float bar = 0.999f * (1 - params.top_p) / static_cast<float>(vocab);
    for (int32_t id = 0; id < vocab; ++id) {
      const float weight = scratch.weights[id];
      mass += static_cast<double>(weight);
      if (weight > bar) candidates[n++] = {.logit = logits[id], .weight = weight, .id = id};
    }
  }
  if (n == 0) return;
  if (params.top_p < 1) n = select_mass(candidates, n, static_cast<double>(params.top_p) * mass);
  const SampleCandidate last = *std::max_element(candidates, candidates + n, more_likely);
  for (int32_t id = 0; id < vocab; ++id) {
    const bool kept = logits[id] > last.logit || (logits[id] == last.logit && id <= last.id);
    if (!kept) scratch.weights[id] = 0;
  }
}

// Sums of the weights of each block, and of all. The sums are over ids in their order, in blocks of four interleaved
// sums, however the ids were chosen.
double sum_weights(int64_t vocab, const SampleScratch& scratch) {
  double mass = 0;
  for (int64_t block = 0; block < SampleScratch::blocks(vocab); ++block) {
    double sums[4] = {};
    const int64_t begin = block * SampleScratch::kBlock, end = std::min(vocab, begin + SampleScratch::kBlock);
    for (int64_t id = begin; id < end; ++id) sums[id % 4] += static_cast<double>(scratch.weights[id]);
    mass += scratch.sums[block] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  return mass;
}

// The id at which the summed weights reach the share `uniform` of `mass`; -1 if no weight is positive.
int32_t pick(int64_t vocab, double mass, double uniform, const SampleScratch& scratch) {
  double rest = uniform * mass;
  int64_t chosen_block = -1;
  for (int64_t block = 0; block < SampleScratch::blocks(vocab); ++block) {
    if (!(scratch.sums[block] > 0)) continue;
    chosen_block = block;
    if (rest <= scratch.sums[block]) break;
    rest -= scratch.sums[block];
  }
  if (chosen_block < 0) return -1;
  int32_t chosen = -1;
  const int64_t begin = chosen_block * SampleScratch::kBlock, end = std::min(vocab, begin + SampleScratch::kBlock);
  for (auto id = static_cast<int32_t>(begin); id < end; ++id) {
    if (!(scratch.weights[id] > 0)) continue;
    chosen = id;
    rest -= static_cast<double>(scratch.weights[id]);
    if (rest <= 0) break;
  }
  return chosen;
}

double sum_of(const DraftCandidate* candidates, int32_t count) {
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += static_cast<double>(candidates[i].probability);
  return sum;
}

// Whether the row's draft is taken. If not, the weights become those of max(p - q, 0), of which the draft has none.
bool take_draft(const SamplingParams& params, const LogitRules& rules, const DraftCandidate* candidates, double mass,
                int32_t position, const SampleScratch& scratch) {
  // q in the units of the weights.
  const double scale = mass / sum_of(candidates, rules.num_candidates);
  double proposed = 0;
  for (int32_t i = 0; i < rules.num_candidates; ++i) {
    if (candidates[i].id == rules.draft) proposed = scale * static_cast<double>(candidates[i].probability);
  }
  const auto wanted = static_cast<double>(scratch.weights[rules.draft]);
  if (uniform_of(params, position, kAcceptDraw) * proposed < wanted) return true;
  for (int32_t i = 0; i < rules.num_candidates; ++i) {
    float& weight = scratch.weights[candidates[i].id];
    const double left = static_cast<double>(weight) - scale * static_cast<double>(candidates[i].probability);
    weight = static_cast<float>(std::max(left, 0.0));
  }
  return false;
}

}  // namespace

float LogSum::logprob(float logit) const {
  const double distance = logit == top ? 0 : static_cast<double>(logit) - static_cast<double>(top);
  return static_cast<float>(std::isnan(distance) ? -static_cast<double>(kInfinity) : distance - std::log(total));
}

void apply_rules(const LogitRules& rules, const SampleLists& lists, const float* logits, int64_t vocab, float* out) {
  std::copy(logits, logits + vocab, out);
  const auto for_ids = [&](int32_t row, bool set, const auto& apply) {
    const uint64_t* bits = lists.bitsets + row * lists.bitset_words;
    for (int64_t word = 0; word * 64 < vocab; ++word) {
      for (uint64_t left = set ? bits[word] : ~bits[word]; left != 0; left &= left - 1) {
        const int64_t id = word * 64 + std::countr_zero(left);
        if (id < vocab) apply(out[id]);
      }
    }
  };
  const LogitDelta* delta = lists.deltas + rules.first_delta;
  if (rules.mask >= 0) for_ids(rules.mask, false, [](float& logit) { logit = -kInfinity; });
  for (int32_t i = 0; i < rules.num_biases; ++i, ++delta) out[delta->id] += delta->delta;
  if (rules.seen >= 0) {
    for_ids(rules.seen, true, [&](float& logit) {
      logit = logit > 0 ? logit / rules.repetition_penalty : logit * rules.repetition_penalty;
    });
  }
  for (int32_t i = 0; i < rules.num_penalties; ++i, ++delta) out[delta->id] += delta->delta;
}

int32_t draw(const SamplingParams& params, const LogitRules& rules, const SampleLists& lists, const float* logits,
             int64_t vocab, int32_t position, const SampleScratch& scratch) {
  float* weights = scratch.weights;
  if (params.min_p > 0) {
    for (int64_t id = 0; id < vocab; ++id) weights[id] = weights[id] >= params.min_p ? weights[id] : 0;
  }
  if (params.top_k > 0 || params.top_p < 1) filter(params, logits, vocab, scratch);
  const double mass = sum_weights(vocab, scratch);
  if (rules.draft < 0 || !(mass > 0)) return pick(vocab, mass, uniform_of(params, position, kSampleDraw), scratch);
  const DraftCandidate* candidates = lists.candidates + rules.first_candidate;
  if (take_draft(params, rules, candidates, mass, position, scratch)) return rules.draft;
  const double left = sum_weights(vocab, scratch);
  const int32_t chosen = pick(vocab, left, uniform_of(params, position, kResidualDraw), scratch);
  // Nothing is left if p and q differ by rounding alone.
  return chosen < 0 ? rules.draft : chosen;
}

int32_t draw_draft(const SamplingParams& params, const float* logits, int64_t vocab, int32_t position, int32_t index,
                   const SampleScratch& scratch, DraftCandidate* out) {
  std::fill_n(out, kDraftCandidates, DraftCandidate{});
  if (params.temperature < kGreedyTemperature) return largest(logits, vocab);
  const int64_t most = std::min<int64_t>(kDraftCandidates, vocab);
  SampleCandidate* found = scratch.candidates;
  int64_t count = select_top(logits, vocab, params.top_k > 0 ? std::min<int64_t>(params.top_k, most) : most, found);
  if (count == 0) return largest(logits, vocab);
  std::sort(found, found + count, more_likely);
  for (int64_t i = 0; i < count; ++i) {
    found[i].weight = static_cast<float>(relative(found[i].logit, found[0].logit, params.temperature));
  }
  while (!(found[count - 1].weight > 0) || found[count - 1].weight < params.min_p) --count;
  if (params.top_p < 1) {
    const double target = static_cast<double>(params.top_p) * weight_of(found, 0, count);
    while (count > 1 && weight_of(found, 0, count - 1) >= target) --count;
  }
  const double mass = weight_of(found, 0, count);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = {.id = found[i].id, .probability = static_cast<float>(static_cast<double>(found[i].weight) / mass)};
  }
  const auto kept = static_cast<int32_t>(count);
  double rest = uniform_of(params, position, kDraftDraw + static_cast<uint64_t>(index)) * sum_of(out, kept);
  int32_t chosen = 0;
  for (int32_t i = 0; i < kept; ++i) {
    if (!(out[i].probability > 0)) break;
    chosen = out[i].id;
    rest -= static_cast<double>(out[i].probability);
    if (rest <= 0) break;
  }
  return chosen;
}

void top_logprobs(const float* logits, int64_t vocab, const LogSum& softmax, int32_t count,
                  const SampleScratch& scratch, TopLogprob* out) {
  const int64_t found = select_top(logits, vocab, std::min<int64_t>(count, vocab), scratch.candidates);
  std::sort(scratch.candidates, scratch.candidates + found, more_likely);
  for (int32_t i = 0; i < count; ++i) {
    const SampleCandidate& candidate = scratch.candidates[i];
    out[i] = i < found ? TopLogprob{.id = candidate.id, .logprob = softmax.logprob(candidate.logit)} : TopLogprob{};
  }
}

void ReferenceOps::sample(const SampleArgs& args) {
  const int64_t vocab = args.vocab;
  for (int32_t i = 0; i < args.num_rows; ++i) {
    const float* logits = args.logits + i * vocab;
    const SamplingParams& params = args.params[i];
    const LogitRules rules = args.lists.rules != nullptr ? args.lists.rules[i] : LogitRules{};
    const LogSum softmax = log_sum(logits, vocab);

    int32_t chosen = softmax.best;
    if (params.forced >= 0) {
      chosen = params.forced;
    } else {
      const float* adjusted = logits;
      if (rules.change_logits()) {
        apply_rules(rules, args.lists, logits, vocab, sample_scratch_.adjusted);
        adjusted = sample_scratch_.adjusted;
      }
      const int32_t best = largest(adjusted, vocab);
      if (adjusted[best] > -kInfinity) chosen = best;
      if (adjusted[best] > -kInfinity && params.temperature >= kGreedyTemperature) {
        for (int64_t id = 0; id < vocab; ++id) {
          sample_scratch_.weights[id] = static_cast<float>(relative(adjusted[id], adjusted[best], params.temperature));
        }
        const int32_t position = args.positions[args.head_rows[i]];
        chosen = draw(params, rules, args.lists, adjusted, vocab, position, sample_scratch_);
      }
    }
    args.sampled[i] = chosen;
    args.logprobs[i] = softmax.logprob(logits[chosen]);
    if (rules.top > 0) {
      top_logprobs(logits, vocab, softmax, rules.top, sample_scratch_, args.top + int64_t{i} * kMaxTopLogprobs);
    }
  }
}

}  // namespace folio
