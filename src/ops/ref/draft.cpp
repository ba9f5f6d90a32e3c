#include "ops/draft.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/ref/host_weights.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/scalar.h"

namespace folio {
namespace {

// One row: the token before it is `previous`. Returns the largest logit's.
int32_t draft_row(const DraftHeadsArgs& args, int64_t row, int32_t previous) {
  const HostWeight &embed = host(args.embed), &head = host(args.head), &confidence = host(args.confidence);
  const int64_t vocab = head.out(), rank = head.in(), hidden = confidence.in() - rank;
  std::vector<float> markov(static_cast<size_t>(rank)), weight(static_cast<size_t>(std::max(rank, confidence.in())));
  dequantize_weight_row(embed, previous, markov.data());

  float* logits = args.logits + row * vocab;
  int32_t best = 0;
  float top = -std::numeric_limits<float>::infinity();
  for (int32_t id = 0; id < vocab; ++id) {
    dequantize_weight_row(head, id, weight.data());
    logits[id] += scalar::dot(weight.data(), markov.data(), rank);
    if (logits[id] > top) top = logits[best = id];
  }

  std::vector<float> joined(static_cast<size_t>(hidden));
  scalar::widen(args.hidden + row * hidden, hidden, joined.data());
  joined.insert(joined.end(), markov.begin(), markov.end());
  dequantize_weight_row(confidence, 0, weight.data());
  args.confidences[row] = scalar::dot(weight.data(), joined.data(), confidence.in());
  return best;
}

}  // namespace

void ReferenceOps::draft_heads(const DraftHeadsArgs& args) {
  for (int64_t block = 0; block < args.num_requests; ++block) {
    int32_t previous = args.anchors[block * args.width];
    for (int32_t i = 0; i < args.width; ++i) {
      const int64_t row = block * args.width + i;
      previous = draft_row(args, row, previous);
      if (args.params != nullptr) {
        const int64_t vocab = host(args.head).out();
        previous = draw_draft(args.params[block], args.logits + row * vocab, vocab, args.positions[row], i,
                              sample_scratch_, args.candidates + row * kDraftCandidates);
      }
      args.tokens[row] = previous;
    }
  }
}

void ReferenceOps::verify(const VerifyArgs& args) {
  for (int32_t s = 0; s < args.inputs.num_requests; ++s) {
    const RequestSpan& span = args.inputs.spans[s];
    const int32_t known = span.num_rows - span.num_drafts;
    args.committed[s] = known;
    if (span.num_drafts == 0) continue;
    const int32_t* drafts = args.ids + span.first_row + known;
    int32_t* sampled = args.sampled + span.sampled_row;
    int32_t accepted = 0;
    if (span.forced_accepts >= 0) {
      for (; accepted < std::min(span.forced_accepts, span.num_drafts); ++accepted)
        sampled[accepted] = drafts[accepted];
    } else {
      while (accepted < span.num_drafts && drafts[accepted] == sampled[accepted]) ++accepted;
    }
    args.committed[s] += accepted;
  }
}

}  // namespace folio
