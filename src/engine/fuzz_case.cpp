#include "engine/fuzz_case.h"

#include <algorithm>

#include "base/error.h"
#include "engine/calibration_profile.h"

namespace folio {
namespace {

// Costs of no machine: rows that are nearly free up to a knee and dear behind it, or the other way round, and draft
// heads from cheap to hopeless, so that verifications are long, short and left out and drafting stops and goes on.
std::shared_ptr<const CalibrationProfile> synthetic_profile(Dice& dice, int32_t width, int32_t seqs) {
  const std::vector<double> slopes = {0, 0.01, 0.05, 0.2};
  auto profile = std::make_shared<CalibrationProfile>();
  profile->draft_width = width;
  profile->max_num_seqs = seqs;
  const int64_t rows = int64_t{seqs} * (width + 1), knee = dice.roll(1, rows);
  const double before = dice.pick(slopes), behind = dice.pick(slopes), draft = dice.pick(slopes);
  double seconds = 1;
  for (int64_t row = 0; row <= rows; ++row) {
    profile->costs.steps_per_second.push_back(1 / seconds);
    seconds += row < knee ? before : behind;
  }
  // At times narrower blocks are cheaper, at times not.
  const double by_width = dice.pick(slopes);
  for (int32_t blocks = 1; blocks <= width; ++blocks) {
    std::vector<double>& seconds_of = profile->costs.draft_seconds.emplace_back();
    for (int32_t requests = 0; requests <= seqs; ++requests) {
      seconds_of.push_back(0.01 + draft * (1 + requests) + by_width * blocks);
    }
  }
  for (int32_t i = 0; i < width; ++i) profile->temperatures.push_back(0.25 * static_cast<double>(dice.roll(1, 8)));
  return profile;
}

}  // namespace

FuzzCase make_fuzz_case(Dice& dice, const Config& config, int64_t max_model_len,
                        std::optional<int32_t> num_speculative_tokens) {
  const auto window = static_cast<int32_t>(config.sliding_window);
  FuzzCase made;
  EngineConfig& engine = made.engine;
  RunnerOptions& runner = made.runner;
  engine.encoder_replay = !dice.one_in(3);
  engine.decoder_replay = !dice.one_in(3);
  engine.prefix_cache = !dice.one_in(6);
  // A page that encoder replay runs again must fill a window.
  const std::vector<int32_t> blocks = engine.encoder_replay
                                          ? std::vector<int32_t>{window, window, window + 2, 2 * window, 3 * window}
                                          : std::vector<int32_t>{16, 16, 18, window, 2 * window};
  runner.block_size = std::max(16, dice.pick(blocks));
  runner.cache_format = {.packed = !dice.one_in(3), .fp8_index = dice.one_in(3)};
  runner.max_model_len = max_model_len;
  runner.max_num_seqs = 6;
  engine.max_num_seqs = static_cast<int32_t>(dice.roll(1, 6));
  // At times too few rows for a decoder tail in one step.
  const int32_t least = (dice.one_in(5) ? 1 : window) + engine.max_num_seqs;
  engine.max_num_batched_tokens = static_cast<int32_t>(dice.roll(least, least + window + 60));
  runner.max_rows = engine.max_num_batched_tokens;
  runner.max_head_rows = static_cast<int32_t>(dice.one_in(4) ? dice.roll(engine.max_num_seqs, 20) : runner.max_rows);
  runner.max_head_rows = std::max(runner.max_head_rows, engine.max_num_seqs);
  const bool drafts = !speculation_refusal(config, make_topology(config), 1);
  if (num_speculative_tokens) {
    engine.num_speculative_tokens = *num_speculative_tokens;
  } else if (drafts && !dice.one_in(3)) {
    engine.num_speculative_tokens = static_cast<int32_t>(dice.roll(1, config.dspark_block_size));
  }
  runner.num_speculative_tokens = engine.num_speculative_tokens;
  if (engine.num_speculative_tokens > 0 && dice.one_in(2)) {
    engine.profile = synthetic_profile(dice, engine.num_speculative_tokens, engine.max_num_seqs);
  }
  engine.long_prefill_token_threshold = static_cast<int32_t>(dice.one_in(3) ? dice.roll(1, 2 * window) : 0);
  engine.mix_prefill_and_decode = !dice.one_in(3);
  engine.depth = static_cast<int32_t>(dice.roll(1, 2));
  engine.state_checkpoint_interval = runner.block_size * dice.roll(0, 4);
  engine.poison = !dice.one_in(8);
  // From less than two requests to enough for all.
  const auto whole = static_cast<int64_t>((max_model_len + runner.block_size - 1) / runner.block_size);
  runner.pages =
      static_cast<int32_t>(dice.one_in(3) ? dice.roll(whole / 2 + 1, whole + 2) : dice.roll(whole, 5 * whole));
  runner.threads = 1;
  made.requests = dice.roll(3, 9);
  return made;
}

std::string describe(const FuzzCase& fuzz_case) {
  const EngineConfig& engine = fuzz_case.engine;
  const RunnerOptions& runner = fuzz_case.runner;
  return concat("block ", runner.block_size, ", ", runner.cache_format.packed ? "fp4" : "bf16",
                runner.cache_format.fp8_index ? " with fp8 index, " : ", ", runner.pages, " pages, ",
                engine.max_num_seqs, " seqs, ", engine.max_num_batched_tokens, " rows, ", runner.max_head_rows,
                " heads, threshold ", engine.long_prefill_token_threshold, ", depth ", engine.depth, ", mixed ",
                engine.mix_prefill_and_decode, ", prefix cache ", engine.prefix_cache, ", decoder replay ",
                engine.decoder_replay, ", encoder replay ", engine.encoder_replay, ", interval ",
                engine.state_checkpoint_interval, ", ", engine.num_speculative_tokens,
                engine.profile != nullptr ? " drafts by a profile" : " drafts");
}

PolicyVerdict CountingPolicy::accept(int32_t id) {
  accepted_.push_back(id);
  return std::ssize(accepted_) >= most_ || id % divisor_ == 0 ? PolicyVerdict::kStop : PolicyVerdict::kContinue;
}

bool CountingPolicy::mask(std::span<uint64_t> bits) {
  if (!masks_ || accepted_.size() % 3 != 0 || accepted_.empty()) return false;
  for (int64_t id = accepted_.back() % 3; id < std::ssize(bits) * 64; id += 3) {
    bits[static_cast<size_t>(id / 64)] &= ~(uint64_t{1} << (id % 64));
  }
  return true;
}

RequestSource::RequestSource(Dice& dice, const FuzzCase& fuzz_case, const Config& config)
    : vocab_(config.vocab_size),
      window_(config.sliding_window),
      block_(fuzz_case.runner.block_size),
      longest_(fuzz_case.runner.max_model_len) {
  documents_.resize(static_cast<size_t>(dice.roll(1, 2)));
  for (auto& document : documents_) append(dice, longest_ * 3 / 4, document);
}

void RequestSource::append(Dice& dice, int64_t count, std::vector<int32_t>& tokens) const {
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(dice.roll(3, vocab_ - 3)));
}

// Often at a border of something, or one beside it.
int64_t RequestSource::length(Dice& dice) const {
  if (dice.one_in(2)) return dice.roll(1, longest_ / 2);
  const int64_t unit = dice.pick(std::vector<int64_t>{2, window_, block_, block_});
  const int64_t border = unit * dice.roll(1, std::max<int64_t>(1, longest_ * 3 / 4 / unit));
  return std::max<int64_t>(1, border + dice.roll(-1, 1));
}

std::vector<int32_t> RequestSource::prompt(Dice& dice) {
  if (dice.one_in(60)) {
    std::vector<int32_t> oversized;
    append(dice, longest_ + dice.roll(-1, 2), oversized);
    return oversized;
  }
  if (!prompts_.empty() && dice.one_in(6)) return dice.pick(prompts_);
  const int64_t count = length(dice);
  std::vector<int32_t> tokens;
  const int64_t kind = dice.roll(0, 4);
  if (kind == 0 && !said_.empty()) {
    tokens = dice.pick(said_);  // the next turn of a conversation
    append(dice, dice.roll(1, block_ + 2), tokens);
    if (std::ssize(tokens) < longest_) return tokens;
  }
  tokens.clear();
  if (kind <= 3) {
    const auto& document = dice.pick(documents_);
    const int64_t from_document = dice.one_in(2) ? count : dice.roll(1, count);
    tokens.assign(document.begin(), document.begin() + std::min(from_document, std::ssize(document)));
  }
  if (std::ssize(tokens) < count) append(dice, count - std::ssize(tokens), tokens);
  return tokens;
}

Request RequestSource::next(Dice& dice) {
  Request request;
  request.prompt = prompt(dice);
  if (prompts_.size() == kRemembered) prompts_.erase(prompts_.begin());
  prompts_.push_back(request.prompt);
  request.max_tokens = dice.one_in(4) ? 1 : dice.roll(2, 40);
  SamplingParams& sampling = request.sampling;
  sampling.temperature = dice.one_in(2) ? 0.0f : 1.0f;
  if (dice.one_in(4)) sampling.top_k = static_cast<int32_t>(dice.roll(1, 50));
  if (dice.one_in(4)) sampling.top_p = 0.9f;
  sampling.seed = static_cast<uint64_t>(dice.roll(0, 5));
  if (dice.one_in(6)) request.repetition_penalty = dice.one_in(2) ? 1.3f : 0.8f;
  if (dice.one_in(6)) request.presence_penalty = 1.5f;
  if (dice.one_in(6)) request.frequency_penalty = dice.one_in(2) ? 0.5f : -0.25f;
  if (dice.one_in(6)) {
    for (int64_t i = dice.roll(1, 20); i > 0; --i) {
      request.logit_bias.push_back(
          {.id = static_cast<int32_t>(dice.roll(0, vocab_ - 1)), .delta = 0.5f * static_cast<float>(dice.roll(-8, 8))});
    }
  }
  if (dice.one_in(4)) request.logprobs = static_cast<int32_t>(dice.roll(1, kMaxTopLogprobs));
  if (dice.one_in(6)) request.min_tokens = dice.roll(1, request.max_tokens);
  request.ignore_eos = dice.one_in(2);
  request.exact = dice.one_in(4);
  request.wants_prompt_rows = dice.one_in(10);
  request.choices = dice.one_in(6) ? static_cast<int32_t>(dice.roll(2, 4)) : 1;
  if (dice.one_in(3)) {
    for (int64_t i = dice.roll(1, 30); i > 0; --i) append(dice, 1, request.stop_ids);
  }
  if (dice.one_in(6)) {
    const CountingPolicy policy(dice.roll(1, 40), static_cast<int32_t>(dice.roll(20, 200)), dice.one_in(2));
    for (int32_t i = 0; i < request.choices; ++i) request.policies.push_back(policy.fresh());
  }
  return request;
}

void RequestSource::remember(std::span<const int32_t> prompt, std::span<const int32_t> answer) {
  if (said_.size() == kRemembered) said_.erase(said_.begin());
  said_.emplace_back(prompt.begin(), prompt.end());
  said_.back().insert(said_.back().end(), answer.begin(), answer.end());
}

}  // namespace folio
