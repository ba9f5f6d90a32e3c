// One request at a time over a ModelRunner: chunked prefill, then one token per step.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "engine/request.h"

namespace folio {

// One request's place in the request memory: a slot and the pages that its positions have needed so far. Released on
// destruction.
class Sequence {
 public:
  explicit Sequence(ModelRunner& runner);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence();

  int64_t position() const { return position_; }
  int32_t slot() const { return slot_; }
  const std::vector<int32_t>& pages() const { return pages_; }
  // Adds the sequence's next `rows` rows to the runner's step: allocates their pages and starts its span; the caller
  // adds the rows. Throws Error(kOutOfMemory) when no page is left.
  void begin_span(int64_t rows);
  // Moves an empty sequence to `position` with the pages that it takes; the caller fills them and the slot.
  void skip_to(int64_t position);

 private:
  void cover(int64_t positions);

  ModelRunner& runner_;
  int32_t slot_;
  std::vector<int32_t> pages_;
  int64_t position_ = 0;
};

// Throws Error(kInvalidArgument) for an empty prompt or an id outside the vocabulary.
void check_tokens(std::span<const int32_t> prompt, const Config& config);

// Throws Error(kInvalidArgument) for an empty prompt, an id outside the vocabulary, or a prompt that leaves no room for
// a token in a context of `max_model_len` tokens.
void check_prompt(std::span<const int32_t> prompt, const Config& config, int64_t max_model_len);

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
