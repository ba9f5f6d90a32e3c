#include "engine/validation.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "engine/replay.h"
#include "engine/scenario.h"

namespace folio {

Scene::Scene(const ModelFiles& files, const ValidationOptions& options, bool exact, SoloRunner& solo,
             ScenarioResult& result)
    : files_(files),
      exact_(exact),
      solo_(solo),
      result_(result),
      window_(files.checkpoint.config().sliding_window),
      runner_(sizes(files.checkpoint.config(), options)) {
  engine_.max_num_seqs = runner_.max_num_seqs;
  engine_.max_num_batched_tokens = runner_.max_rows;
  engine_.decoder_replay = !exact;
  engine_.encoder_replay = !exact;
  engine_.state_checkpoint_interval = block();
  engine_.num_speculative_tokens = runner_.num_speculative_tokens = options.num_speculative_tokens;
  engine_.profile = options.profile;
  engine_.poison = true;
}

RunnerOptions Scene::sizes(const Config& config, const ValidationOptions& options) {
  RunnerOptions runner;
  runner.isa = options.isa;
  runner.threads = options.threads;
  runner.cache_format = options.cache_format;
  runner.block_size = std::max(Geometry::kMinBlockSize, static_cast<int32_t>(config.sliding_window));
  runner.max_model_len = std::min<int64_t>(12 * runner.block_size, config.max_position_embeddings);
  runner.max_num_seqs = ValidationOptions::kMaxNumSeqs;
  runner.max_rows = 3 * runner.block_size + runner.max_num_seqs;
  runner.max_head_rows = runner.max_rows;
  return runner;
}

EngineProbe& Scene::start() {
  probe_ = std::make_unique<EngineProbe>(files_, runner_, engine_);
  return *probe_;
}

void Scene::finish() {
  if (!probe_->drain()) {
    result_.failures.emplace_back("the requests do not end");
    return;
  }
  const auto append = [&](const std::vector<std::string>& failures) {
    result_.failures.insert(result_.failures.end(), failures.begin(), failures.end());
  };
  append(probe_->leaks());
  append(probe_->recorder().changed_pages());
  const AnswerCheck check = probe_->check(solo_);
  append(check.differences());
  result_.tokens_compared += check.tokens_compared();
  result_.requests += std::ssize(probe_->sent());
}

std::vector<int32_t> Scene::prompt(int64_t length, uint64_t number) const {
  const auto ids = static_cast<uint64_t>(solo_.runner().config().vocab_size - 6);
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<int32_t>(3 + random_bits(number, 1, static_cast<uint64_t>(i)) % ids));
  }
  return tokens;
}

Request Scene::request(std::vector<int32_t> prompt, int64_t max_tokens) const {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

SoloResult Scene::alone(const Request& request) {
  SoloRun run{.tokens = request.prompt,
              .prompt_length = std::ssize(request.prompt),
              .plan = {},
              .shared = {},
              .request = &request,
              .samples = request.max_tokens,
              .stops = {}};
  if (!exact_ && !request.exact) run.plan.decoder_start = decoder_tail_start(run.prompt_length, window_);
  return solo_.run(run);
}

void for_each_depth(Scene& scene, void (*play)(Scene&)) {
  for (const int32_t depth : {1, 2}) {
    scene.engine_config().depth = depth;
    scene.start();
    play(scene);
    scene.finish();
  }
}

namespace {

void play(const std::vector<Scenario>& scenarios, const ModelFiles& files, const ValidationOptions& options, bool exact,
          const std::string& mode, SoloRunner& solo, const std::function<void(const ScenarioResult&)>& report) {
  for (const Scenario& scenario : scenarios) {
    if (std::string_view(scenario.name).find(options.only) == std::string_view::npos) continue;
    ScenarioResult result{.mode = mode, .scenario = scenario.name, .failures = {}};
    const double start = now_seconds();
    Scene scene(files, options, exact, solo, result);
    try {
      scenario.play(scene);
    } catch (const Error& error) {
      result.failures.emplace_back(error.what());
    }
    result.seconds = now_seconds() - start;
    report(result);
  }
}

void check_width(const ModelFiles& files, int32_t tokens) {
  const Config& config = files.checkpoint.config();
  const auto refusal = speculation_refusal(config, make_topology(config), tokens);
  if (refusal) fail(ErrorCode::kInvalidArgument, *refusal);
}

}  // namespace

void validate_runtime(const ModelFiles& files, const ValidationOptions& options,
                      const std::function<void(const ScenarioResult&)>& report) {
  if (options.num_speculative_tokens != 0) check_width(files, options.num_speculative_tokens);
  std::vector<Scenario> scenarios;
  for (const auto& part : {sharing_scenarios(), interruption_scenarios(), border_scenarios()}) {
    scenarios.insert(scenarios.end(), part.begin(), part.end());
  }
  SoloRunner solo(files, Scene::sizes(files.checkpoint.config(), options));
  for (const bool exact : {true, false}) {
    play(scenarios, files, options, exact, exact ? "exact" : "default", solo, report);
  }
}

void validate_dspark(const ModelFiles& files, const DsparkValidation& validation,
                     const std::function<void(const ScenarioResult&)>& report) {
  ValidationOptions options = validation.options;
  const int32_t only = options.num_speculative_tokens;
  check_width(files, only != 0 ? only : 1);
  const auto widest = static_cast<int32_t>(files.checkpoint.config().dspark_block_size);
  for (const bool packed : {true, false}) {
    if (packed != validation.packed.value_or(packed)) continue;
    options.cache_format.packed = packed;
    SoloRunner solo(files, Scene::sizes(files.checkpoint.config(), options));
    for (int32_t width = only != 0 ? only : 1; width <= (only != 0 ? only : widest); ++width) {
      options.num_speculative_tokens = width;
      for (const bool exact : {true, false}) {
        const std::string mode = concat(exact ? "copy" : "replay", packed ? " fp4" : " bf16", " k=", width);
        play(dspark_scenarios(), files, options, exact, mode, solo, report);
      }
    }
  }
}

}  // namespace folio
