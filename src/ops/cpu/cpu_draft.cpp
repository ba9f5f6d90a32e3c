// Draft heads: the blocks advance together, a token each at a time. A step of all blocks reads the Markov head once,
// and is bound by that.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"

namespace folio::cpu {
namespace {

// Adds the bias; the lowest id of the largest sum.
int32_t add_and_pick(float* logits, const float* bias, int64_t vocab) {
  int32_t best = 0;
  float top = -std::numeric_limits<float>::infinity();
  for (int32_t id = 0; id < vocab; ++id) {
    logits[id] += bias[id];
    if (logits[id] > top) top = logits[best = id];
  }
  return best;
}

}  // namespace

void CpuOps::draft_heads(const DraftHeadsArgs& args) {
  const HostWeight& embed = host(args.embed);
  const int64_t vocab = args.head->out(), rank = args.head->in(), hidden = args.confidence->in() - rank;
  FOLIO_CHECK(args.num_requests <= limits_.max_drafting && rank <= limits_.markov_rank, args.num_requests);
  const Scratch& s = scratch_;
  for (int64_t i = 0; i < args.width; ++i) {
    for (int64_t block = 0; block < args.num_requests; ++block) {
      const int64_t row = block * args.width + i;
      const int32_t previous = i == 0 ? args.anchors[row] : args.tokens[row - 1];
      const bf16* markov = embed.values + previous * rank;
      std::copy_n(markov, rank, s.markov + block * rank);
      bf16* joined = s.joined + block * (hidden + rank);
      std::copy_n(markov, rank, std::copy_n(args.hidden + row * hidden, hidden, joined));
    }
    linear({.weight = args.head, .x = s.markov, .rows = args.num_requests, .out_f32 = s.markov_bias});
    linear({.weight = args.confidence, .x = s.joined, .rows = args.num_requests, .out_f32 = s.confidence});
    pool_.parallel_for(args.num_requests, 1, [&](int64_t first, int64_t last, int thread) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t row = block * args.width + i;
        float* logits = args.logits + row * vocab;
        args.tokens[row] = add_and_pick(logits, s.markov_bias + block * vocab, vocab);
        args.confidences[row] = s.confidence[block];
        if (args.params == nullptr) continue;
        args.tokens[row] =
            draw_draft(args.params[block], logits, vocab, args.positions[row], static_cast<int32_t>(i),
                       s.threads[static_cast<size_t>(thread)].sample, args.candidates + row * kDraftCandidates);
      }
    });
  }
}

}  // namespace folio::cpu
