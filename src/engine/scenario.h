// The stage on which a validation scenario plays: an engine of the right size for the model, prompts, expectations.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "engine/engine_probe.h"
#include "engine/validation.h"

namespace folio {

class Scene {
 public:
  Scene(const ModelFiles& files, const ValidationOptions& options, bool exact, SoloRunner& solo,
        ScenarioResult& result);

  // Sizes that fit the model: a page of at least a window, a context of twelve pages.
  static RunnerOptions sizes(const Config& config, const ValidationOptions& options);

  bool exact() const { return exact_; }
  int32_t num_speculative_tokens() const { return engine_.num_speculative_tokens; }
  int64_t block() const { return runner_.block_size; }
  int64_t window() const { return window_; }
  int64_t context() const { return runner_.max_model_len; }
  int32_t eos() const { return solo_.runner().config().eos_token_id; }

  // To be changed before start(): tests of one scenario may start several engines one after the other.
  RunnerOptions& runner_options() { return runner_; }
  EngineConfig& engine_config() { return engine_; }
  EngineProbe& start();
  EngineProbe& engine() { return *probe_; }
  // Drains the engine, compares all answers and looks for leaks.
  void finish();

  // A prompt of random ids; equal numbers give equal beginnings.
  std::vector<int32_t> prompt(int64_t length, uint64_t number) const;
  Request request(std::vector<int32_t> prompt, int64_t max_tokens) const;
  // Steps until the condition holds; a failure if it never does.
  template <typename Condition>
  bool step_until(const char* what, Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      if (probe_->core().empty()) break;
      probe_->step();
    }
    expect(condition(), "never came to: ", what);
    return condition();
  }
  template <typename... Parts>
  void expect(bool condition, const Parts&... parts) {
    if (!condition) result_.failures.push_back(concat(parts...));
  }
  // The answer of a request alone and cold, in the mode of the scene.
  SoloResult alone(const Request& request);

 private:
  const ModelFiles& files_;
  bool exact_;
  SoloRunner& solo_;
  ScenarioResult& result_;
  int64_t window_;
  RunnerOptions runner_;
  EngineConfig engine_;
  std::unique_ptr<EngineProbe> probe_;
};

// Plays on an engine with one step in flight and on one with two.
void for_each_depth(Scene& scene, void (*play)(Scene&));

struct Scenario {
  const char* name;
  void (*play)(Scene&);
};

// scenarios_*.cpp
std::vector<Scenario> sharing_scenarios();
std::vector<Scenario> interruption_scenarios();
std::vector<Scenario> border_scenarios();
std::vector<Scenario> dspark_scenarios();

}  // namespace folio
