// Sampling: exponentials by the kernels over fixed parts of the vocabulary, rows and parts over threads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"

namespace folio::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Lowest id whose logit is `top`, the largest of the part that begins at `begin`; `begin` if all are NaN.
int32_t index_of(const float* logits, int64_t begin, int64_t end, float top) {
  const float* found = std::find(logits + begin, logits + end, top);
  return static_cast<int32_t>(found == logits + end ? begin : found - logits);
}

}  // namespace

int32_t CpuOps::largest(const float* logits, int64_t vocab) const {
  int64_t best = 0;
  float top = -kInfinity;
  for (int64_t begin = 0; begin < vocab; begin += kSamplePart) {
    const float part = kernels_.log_sum(logits + begin, std::min(kSamplePart, vocab - begin)).top;
    if (!(part > top)) continue;
    top = part;
    best = begin;
  }
  return index_of(logits, best, std::min(vocab, best + kSamplePart), top);
}

// The softmax of a row from its parts, in their order.
LogSum CpuOps::softmax_of(const float* logits, int64_t vocab, const PartSum* parts) {
  const int64_t count = sample_parts(vocab);
  const PartSum* best =
      std::max_element(parts, parts + count, [](const PartSum& a, const PartSum& b) { return a.top < b.top; });
  const int64_t begin = (best - parts) * kSamplePart;
  LogSum sum{
      .best = index_of(logits, begin, std::min(vocab, begin + kSamplePart), best->top), .top = best->top, .total = 0};
  for (const PartSum* part = parts; part < parts + count; ++part) {
    const double distance = static_cast<double>(part->top) - static_cast<double>(sum.top);
    sum.total += static_cast<double>(part->sum) * (part->top == sum.top ? 1 : std::exp(distance));
  }
  return sum;
}

void CpuOps::sample_row(const SampleArgs& args, int64_t row, const PartSum* parts, const SampleScratch& scratch) const {
  const int64_t vocab = args.vocab;
  const float* logits = args.logits + row * vocab;
  const SamplingParams& params = args.params[row];
  const LogitRules rules = args.lists.rules != nullptr ? args.lists.rules[row] : LogitRules{};
  const LogSum softmax = softmax_of(logits, vocab, parts);

  int32_t chosen = softmax.best;
  if (params.forced >= 0) {
    chosen = params.forced;
  } else if (rules.change_logits() || params.temperature >= kGreedyTemperature) {
    const float* adjusted = logits;
    int32_t best = softmax.best;
    if (rules.change_logits()) {
      apply_rules(rules, args.lists, logits, vocab, scratch.adjusted);
      adjusted = scratch.adjusted;
      best = largest(adjusted, vocab);
    }
    if (adjusted[best] > -kInfinity) {
      chosen = best;
      if (params.temperature >= kGreedyTemperature) {
        kernels_.weights(adjusted, vocab, adjusted[best], 1 / params.temperature, scratch.weights);
        const int32_t position = args.positions[args.head_rows[row]];
        chosen = draw(params, rules, args.lists, adjusted, vocab, position, scratch);
      }
    }
  }
  args.sampled[row] = chosen;
  args.logprobs[row] = softmax.logprob(logits[chosen]);
  if (rules.top > 0) {
    top_logprobs(logits, vocab, softmax, rules.top, scratch, args.top + row * kMaxTopLogprobs);
  }
}

void CpuOps::sample(const SampleArgs& args) {
  const int64_t vocab = args.vocab, parts = sample_parts(vocab);
  FOLIO_CHECK(vocab <= limits_.vocab, vocab);
  for (int64_t row0 = 0; row0 < args.num_rows; row0 += kSampleRows) {
    const int64_t rows = std::min(kSampleRows, args.num_rows - row0);
    pool_.parallel_for(rows * parts, 1, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i % parts * kSamplePart;
        scratch_.sample_sums[i] =
            kernels_.log_sum(args.logits + (row0 + i / parts) * vocab + begin, std::min(kSamplePart, vocab - begin));
      }
    });
    pool_.parallel_for(rows, 1, [&](int64_t first, int64_t last, int thread) {
      for (int64_t i = first; i < last; ++i) {
        sample_row(args, row0 + i, scratch_.sample_sums + i * parts,
                   scratch_.threads[static_cast<size_t>(thread)].sample);
      }
    });
  }
}

}  // namespace folio::cpu
