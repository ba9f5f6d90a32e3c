// One request at a time over a ModelRunner: chunked prefill, then one token per step.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/sequence.h"

namespace folio {

struct GenerateOptions {
  int64_t max_tokens = 128;
  SamplingParams sampling;
  bool ignore_eos = false;
};

struct Generation {
  std::vector<int32_t> tokens;  // generated ids, the end-of-sentence token included when it ended the generation
  FinishReason finish = FinishReason::kLength;
  double prefill_seconds = 0;  // until the first token
  double decode_seconds = 0;   // after it
};

// What to do after a token has arrived.
enum class Verdict : uint8_t { kContinue, kStop, kAbort };

// Prefills `prompt` in steps of at most the runner's max_rows, then decodes until the end-of-sentence token,
// max_tokens, the model's length or the callback ends it. `on_token` sees every token but the end of sentence;
// `on_prefill` is called after each prefill step with the number of prompt tokens done and may abort. Throws
// Error(kInvalidArgument) for an empty prompt, one that leaves no room for a token, or an id outside the vocabulary.
Generation generate(ModelRunner& runner, std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<Verdict(int32_t)>& on_token,
                    const std::function<Verdict(int64_t)>& on_prefill = nullptr);

}  // namespace folio
