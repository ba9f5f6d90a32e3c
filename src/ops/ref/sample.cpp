#include "ops/sample.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "ops/ref/reference_ops.h"

namespace folio {

void ReferenceOps::sample(const SampleArgs& args) {
  // More likely first, lower id first among equals.
  const auto less_likely = [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability < b.probability : a.id > b.id;
  };
  for (int32_t i = 0; i < args.num_rows; ++i) {
    const float* logits = args.logits + i * args.vocab;
    const SamplingParams& params = args.params[i];
    const auto best = static_cast<int32_t>(std::max_element(logits, logits + args.vocab) - logits);
    const auto top = static_cast<double>(logits[best]);
    double total = 0;
    for (int64_t id = 0; id < args.vocab; ++id) total += std::exp(static_cast<double>(logits[id]) - top);

    int32_t chosen = best;
    if (params.forced >= 0) {
      chosen = params.forced;
    } else if (params.temperature >= kGreedyTemperature) {
      // Unnormalised probabilities, the most likely token's being 1.
      candidates_.clear();
      for (int32_t id = 0; id < args.vocab; ++id) {
        const double p = std::exp((static_cast<double>(logits[id]) - top) / static_cast<double>(params.temperature));
        if (p >= static_cast<double>(params.min_p)) candidates_.push_back({p, id});
      }
      const bool few = params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates_.size();
      if (few) {
        std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k - 1, candidates_.end(),
                         [&](const Candidate& a, const Candidate& b) { return less_likely(b, a); });
        candidates_.resize(static_cast<size_t>(params.top_k));
      }
      if (params.top_p < 1) {
        double mass = 0;
        for (const Candidate& c : candidates_) mass += c.probability;
        // A heap yields the likely ones in order without sorting the tail.
        auto end = candidates_.end();
        std::make_heap(candidates_.begin(), end, less_likely);
        for (double kept = 0; end != candidates_.begin() && kept < static_cast<double>(params.top_p) * mass; --end) {
          kept += candidates_.front().probability;
          std::pop_heap(candidates_.begin(), end, less_likely);
        }
        candidates_.erase(candidates_.begin(), end);
      }
      // The order of the sums below must not depend on how the candidates were found.
      std::sort(candidates_.begin(), candidates_.end(),
                [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
      double mass = 0;
      for (const Candidate& c : candidates_) mass += c.probability;
      const auto position = static_cast<uint64_t>(args.positions[args.head_rows[i]]);
      double rest = random_uniform(params.seed, position, 0) * mass;
      for (const Candidate& c : candidates_) {
        chosen = c.id;
        rest -= c.probability;
        if (rest <= 0) break;
      }
    }
    args.sampled[i] = chosen;
    args.logprobs[i] = static_cast<float>(static_cast<double>(logits[chosen]) - top - std::log(total));
  }
}

}  // namespace folio
