// What a random schedule is made of: an engine's configuration, requests, events. Everything follows from a seed.
#pragma once

#include <optional>
#include <span>

#include "base/rng.h"
#include "engine/engine_config.h"
#include "engine/model_runner.h"
#include "engine/request.h"

namespace folio {

// Draws in order from one seed; the same on every machine and compiler.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  // low .. high, both included.
  int64_t roll(int64_t low, int64_t high) {
    const auto range = static_cast<uint64_t>(high - low + 1);
    return low + static_cast<int64_t>(random_bits(seed_, 0, next_++) % range);
  }
  bool one_in(int64_t n) { return roll(1, n) == 1; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(roll(0, std::ssize(from) - 1))];
  }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

struct FuzzCase {
  RunnerOptions runner;
  EngineConfig engine;
  int64_t requests = 0;
};

// Small pages, tiny pools, every switch; what the model cannot do is left out. `num_speculative_tokens`: as
// FuzzOptions.
FuzzCase make_fuzz_case(Dice& dice, const Config& config, int64_t max_model_len,
                        std::optional<int32_t> num_speculative_tokens);

// One line about the configuration.
std::string describe(const FuzzCase& fuzz_case);

// Stops after a number of tokens, or at ids that a number divides. If it masks: after every third token the ids that
// equal the last one modulo 3 may not come. Rules that need the host between two tokens.
class CountingPolicy final : public TokenPolicy {
 public:
  CountingPolicy(int64_t most, int32_t divisor, bool masks = false) : most_(most), divisor_(divisor), masks_(masks) {}
  bool mask(std::span<uint64_t> bits) override;
  bool masks() const override { return masks_; }
  PolicyVerdict accept(int32_t id) override;
  void rollback(int32_t count) override { accepted_.resize(accepted_.size() - static_cast<size_t>(count)); }
  std::shared_ptr<CountingPolicy> fresh() const { return std::make_shared<CountingPolicy>(most_, divisor_, masks_); }

 private:
  int64_t most_;
  int32_t divisor_;
  bool masks_;
  std::vector<int32_t> accepted_;
};

// Prompts that share beginnings: some grow out of a few random documents, some out of what was said before.
class RequestSource {
 public:
  RequestSource(Dice& dice, const FuzzCase& fuzz_case, const Config& config);
  Request next(Dice& dice);
  // A finished answer: later prompts may go on from it.
  void remember(std::span<const int32_t> prompt, std::span<const int32_t> answer);
  // A text that prompts begin with.
  const std::vector<int32_t>& document() const { return documents_.front(); }

 private:
  static constexpr size_t kRemembered = 64;  // prompts and conversations; the oldest are forgotten
  std::vector<int32_t> prompt(Dice& dice);
  int64_t length(Dice& dice) const;
  void append(Dice& dice, int64_t count, std::vector<int32_t>& tokens) const;

  int64_t vocab_, window_, block_, longest_;
  std::vector<std::vector<int32_t>> documents_;
  std::vector<std::vector<int32_t>> prompts_;  // of the requests so far
  std::vector<std::vector<int32_t>> said_;     // prompts with their answers
};

}  // namespace folio
