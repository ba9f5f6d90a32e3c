#include "speculation_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "interrupt.h"
#include "tokenizer/stop_policy.h"

namespace folio {
namespace {

// Counts tokens, and keeps them where somebody wants them.
class CountingSink final : public Sink {
 public:
  CountingSink(int64_t& told, std::vector<int32_t>* kept) : told_(told), kept_(kept) {}
  void on_token(int32_t, const TokenOutput& token) override {
    ++told_;
    if (kept_ != nullptr) kept_->push_back(token.id);
  }
  void on_finish(int32_t, FinishReason reason, const Usage&, const std::string& message) override {
    if (reason == FinishReason::kRefused) fail(ErrorCode::kInvalidArgument, message);
  }

 private:
  int64_t& told_;
  std::vector<int32_t>* kept_;
};

}  // namespace

int64_t SpeculationWorkload::longest_prompt() const {
  int64_t longest = 0;
  for (const BatchRequest& line : lines) longest = std::max(longest, std::ssize(line.request->prompt));
  return longest;
}

int64_t SpeculationWorkload::longest_context() const {
  int64_t longest = 0;
  for (const BatchRequest& line : lines) {
    longest = std::max(longest, std::ssize(line.request->prompt) + line.request->max_tokens);
  }
  return longest;
}

double LoadMeasurement::draft_share() const {
  const double forward = std::reduce(forward_seconds.begin(), forward_seconds.end());
  const double draft = std::reduce(draft_seconds.begin(), draft_seconds.end());
  return draft / (forward + draft);
}

SpeculationLoad::SpeculationLoad(ModelRunner& runner, const EngineConfig& config, const SpeculationWorkload& workload,
                                 int32_t requests, const GivenAcceptance* given)
    : workload_(workload),
      given_(given),
      requests_(static_cast<size_t>(requests)),
      vocab_(runner.config().vocab_size),
      core_(runner, config) {}

void SpeculationLoad::submit() {
  const auto line = static_cast<size_t>(next_) % workload_.lines.size();
  const BatchRequest& asked = workload_.lines[line];
  const auto request = std::make_shared<Request>(*asked.request);
  if (!asked.stops.empty()) request->policies = stop_policies(*workload_.tokenizer, asked.stops, 1);
  request->sink = std::make_shared<CountingSink>(told_, kept_ != nullptr ? &(*kept_)[line] : nullptr);
  core_.submit(next_++, request);
}

void SpeculationLoad::step() {
  check_interrupt();
  if (given_ != nullptr) {
    for (const auto& state : core_.scheduler().states()) {
      if (!state->drafts.empty()) replace_drafts(*state);
    }
  }
  core_.step();
}

void SpeculationLoad::run(int64_t steps, LoadMeasurement& measured) {
  const double begin = now_seconds();
  const int64_t told = told_;
  for (int64_t i = 0; i < steps; ++i) {
    while (static_cast<size_t>(core_.scheduler().running() + core_.scheduler().waiting()) < requests_) submit();
    const EngineCore::Stats before = core_.stats();
    step();
    measured.forward_seconds.push_back(core_.stats().run_seconds - before.run_seconds);
    measured.draft_seconds.push_back(core_.stats().draft_seconds - before.draft_seconds);
  }
  measured.seconds += now_seconds() - begin;
  measured.steps += steps;
  measured.tokens += told_ - told;
  measured.speculation = core_.scheduler().stats().speculation;
}

LineAnswers SpeculationLoad::answers(int32_t lines) {
  LineAnswers answers(workload_.lines.size());
  kept_ = &answers;
  for (int32_t i = 0; i < lines; ++i) submit();
  while (!core_.empty()) step();
  kept_ = nullptr;
  return answers;
}

void SpeculationLoad::replace_drafts(RequestState& state) const {
  const std::vector<int32_t>& answer = given_->answers[static_cast<size_t>(state.id) % workload_.lines.size()];
  const auto width = static_cast<int32_t>(state.drafts.size());
  const auto stream = static_cast<uint64_t>(state.id);
  const int32_t right = ForcedAcceptance(given_->length).accepts(stream, state.generated(), width);
  for (int32_t i = 0; i < width; ++i) {
    const auto place = static_cast<size_t>(i), next = static_cast<size_t>(state.generated() + i);
    const int32_t id = next < answer.size() ? answer[next] : 0;
    state.drafts[place] = i < right ? id : static_cast<int32_t>((id + 1) % vocab_);
    // Draft i is accepted behind the others with this probability.
    const double p = std::clamp(given_->length - 1 - i, 1e-6, 1 - 1e-6);
    state.confidences[place] = static_cast<float>(std::log(p / (1 - p)));
  }
}

WidthEngines::WidthEngines(const ModelFiles& files, const RunnerOptions& options, const SpeculationWorkload& workload,
                           int32_t max_num_seqs) {
  constexpr int64_t kMostPrefillRows = 2048;
  const auto widest = static_cast<int32_t>(files.checkpoint.config().dspark_block_size);
  for (int32_t width = 0; width <= widest; ++width) {
    RunnerOptions made = options;
    made.num_speculative_tokens = width;
    made.max_num_seqs = max_num_seqs;
    made.max_head_rows = max_num_seqs * (1 + width);
    const int64_t prefill = std::min(kMostPrefillRows, max_num_seqs * workload.longest_prompt());
    made.max_rows = static_cast<int32_t>(std::max<int64_t>(made.max_head_rows + 1, prefill));
    made.max_model_len = workload.longest_context();
    made.pages = static_cast<int32_t>(max_num_seqs * (made.max_model_len / made.block_size + 1));
    runners_.push_back(std::make_unique<ModelRunner>(files, made));
  }
}

EngineConfig WidthEngines::config(int32_t width, std::shared_ptr<const CalibrationProfile> profile) const {
  const RunnerOptions& options = runners_[static_cast<size_t>(width)]->options();
  EngineConfig config;
  config.max_num_seqs = options.max_num_seqs;
  config.max_num_batched_tokens = options.max_rows;
  config.num_speculative_tokens = width;
  config.profile = std::move(profile);
  config.prefix_cache = false;
  return config;
}

}  // namespace folio
