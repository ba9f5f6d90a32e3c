#include "eval_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "interrupt.h"

namespace folio {
namespace {

constexpr int32_t kPromptHeadRows = 256;  // of a step: logits need memory

RunnerOptions runner_for(RunnerOptions runner, const Config& config, const EvalEngineOptions& options) {
  runner.num_speculative_tokens = options.drafts ? kEvalDrafts : 0;
  runner.max_model_len = context_length(config, options.longest);
  runner.cached_requests = options.cached_requests;
  runner.max_head_rows = runner.max_num_seqs * (1 + runner.num_speculative_tokens);
  if (options.prompt_rows) runner.max_head_rows = std::max(runner.max_head_rows, kPromptHeadRows);
  return runner;
}

EngineConfig config_for(const RunnerOptions& runner, const EvalEngineOptions& options) {
  return {.max_num_seqs = runner.max_num_seqs,
          .max_num_batched_tokens = runner.max_rows,
          .prefix_cache = options.encoder_replay,
          .decoder_replay = options.decoder_replay,
          .encoder_replay = options.encoder_replay,
          .num_speculative_tokens = runner.num_speculative_tokens};
}

}  // namespace

EvalEngine::EvalEngine(const ModelFiles& files, RunnerOptions runner, const EvalEngineOptions& options)
    : runner_(files, runner_for(std::move(runner), files.checkpoint.config(), options)),
      core_(runner_, config_for(runner_.options(), options)) {}

std::vector<KeptAnswer> EvalEngine::run(const std::vector<std::shared_ptr<Request>>& requests,
                                        const std::string& what) {
  const bool progress = isatty(STDERR_FILENO) != 0;
  std::vector<std::shared_ptr<AnswerKeeper>> sinks;
  for (const auto& request : requests) {
    sinks.push_back(std::make_shared<AnswerKeeper>());
    request->sink = sinks.back();
    core_.submit(next_++, request);
  }
  for (double shown = 0; !core_.empty();) {
    check_interrupt();
    core_.step();
    if (!progress || now_seconds() - shown < 0.2) continue;
    shown = now_seconds();
    const auto done = std::count_if(sinks.begin(), sinks.end(), [](const auto& sink) { return sink->answer.finished; });
    std::fprintf(stderr, "\r\033[Keval: %s, %lld of %zu", what.c_str(), static_cast<long long>(done), sinks.size());
  }
  if (progress) std::fprintf(stderr, "\r\033[K");
  std::vector<KeptAnswer> answers;
  for (const auto& sink : sinks) {
    const KeptAnswer& answer = sink->answer;
    if (answer.reason == FinishReason::kRefused || answer.reason == FinishReason::kError) {
      fail(ErrorCode::kInvalidArgument, what, ": ", answer.message);
    }
    answers.push_back(std::move(sink->answer));
  }
  return answers;
}

std::shared_ptr<Request> greedy_request(std::vector<int32_t> prompt, int64_t max_tokens) {
  auto request = std::make_shared<Request>();
  request->prompt = std::move(prompt);
  request->max_tokens = max_tokens;
  request->sampling.temperature = 0;
  return request;
}

}  // namespace folio
