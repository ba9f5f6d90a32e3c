#include "engine/generator.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace folio {

Sequence::Sequence(ModelRunner& runner) : runner_(runner) {
  const auto slot = runner.states().ids().allocate();
  FOLIO_CHECK(slot.has_value(), "no free slot");
  slot_ = *slot;
}

Sequence::~Sequence() {
  for (const int32_t page : pages_) runner_.pages().release(page);
  runner_.states().ids().release(slot_);
}

void Sequence::cover(int64_t positions) {
  while (std::ssize(pages_) < runner_.geometry().pages_for(positions)) {
    const auto page = runner_.pages().allocate();
    if (!page) fail(ErrorCode::kOutOfMemory, "no page left for position ", position_, " of a request");
    pages_.push_back(*page);
  }
}

void Sequence::begin_span(int64_t rows) {
  cover(position_ + rows);
  runner_.builder().add_request({.slot = slot_, .restart = position_ == 0}, pages_);
  position_ += rows;
}

void Sequence::skip_to(int64_t position) {
  FOLIO_CHECK(position_ == 0);
  cover(position);
  position_ = position;
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kRefused:
      return "refused";
  }
  return "?";
}

void check_tokens(std::span<const int32_t> prompt, const Config& config) {
  if (prompt.empty()) fail(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token");
  for (const int32_t id : prompt) {
    if (id < 0 || id >= config.vocab_size) {
      fail(ErrorCode::kInvalidArgument, "token id ", id, " is not in the vocabulary: ids are 0 to ",
           config.vocab_size - 1);
    }
  }
}

void check_prompt(std::span<const int32_t> prompt, const Config& config, int64_t max_model_len) {
  check_tokens(prompt, config);
  if (std::ssize(prompt) >= max_model_len) {
    fail(ErrorCode::kInvalidArgument, "the prompt has ", prompt.size(), " tokens and the context holds ", max_model_len,
         ": shorten the prompt, or raise --max-model-len if the model allows it");
  }
}

Generation generate(ModelRunner& runner, std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<Verdict(int32_t)>& on_token,
                    const std::function<Verdict(int64_t)>& on_prefill) {
  const int64_t limit = runner.max_model_len();
  const auto length = std::ssize(prompt);
  check_prompt(prompt, runner.config(), limit);

  Generation result;
  Sequence sequence(runner);
  StepBuilder& builder = runner.builder();
  const double start = now_seconds();
  const auto abort = [&] {
    result.finish = FinishReason::kAbort;
    return result;
  };

  StepOutputs outputs;
  for (int64_t done = 0; done < length;) {
    const int64_t rows = std::min<int64_t>(runner.options().max_rows, length - done);
    builder.clear();
    sequence.begin_span(rows);
    for (int64_t i = 0; i < rows; ++i) builder.add_row({.value = prompt[static_cast<size_t>(done + i)]});
    done += rows;
    if (done == length) builder.add_sampled_row(options.sampling);
    outputs = runner.run();
    if (on_prefill && on_prefill(done) != Verdict::kContinue) return abort();
  }
  result.prefill_seconds = now_seconds() - start;

  const int64_t most = std::min(options.max_tokens, limit - length);
  const double decode_start = now_seconds();
  while (std::ssize(result.tokens) < most) {
    const int32_t token = outputs.sampled[0];
    result.tokens.push_back(token);
    result.decode_seconds = now_seconds() - decode_start;
    if (token == runner.config().eos_token_id && !options.ignore_eos) {
      result.finish = FinishReason::kStop;
      return result;
    }
    const Verdict verdict = on_token(token);
    if (verdict == Verdict::kAbort) return abort();
    if (verdict == Verdict::kStop) {
      result.finish = FinishReason::kStop;
      return result;
    }
    if (std::ssize(result.tokens) == most) break;
    builder.clear();
    sequence.begin_span(1);
    builder.add_row({.source = RowSource::kLastToken});
    builder.add_sampled_row(options.sampling);
    outputs = runner.run();
  }
  return result;
}

}  // namespace folio
