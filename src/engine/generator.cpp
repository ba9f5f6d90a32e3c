#include "engine/generator.h"

#include <algorithm>

#include "base/clock.h"

namespace folio {

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
