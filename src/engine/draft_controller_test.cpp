#include "engine/draft_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "base/rng.h"

namespace folio {
namespace {

constexpr int32_t kWidest = 5;
using Values = std::vector<StepValue>;  // by width

// Runs steps of a controller whose blocks are worth what `world(step)` says for each width.
class Simulation {
 public:
  explicit Simulation(std::function<Values(int64_t)> world) : world_(std::move(world)) {}

  void run(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i, ++step_) {
      const int32_t width = controller_.next_width();
      ++drafted_[static_cast<size_t>(width)];
      if (width == 0) {
        tokens_ += 1;
        seconds_ += 1;
        continue;
      }
      Values values = world_(step_);
      values.resize(static_cast<size_t>(width));
      tokens_ += values.back().tokens;
      seconds_ += values.back().seconds;
      controller_.observe(values);
    }
  }

  // Of all steps so far, against as many without drafts.
  double speedup() const { return tokens_ / seconds_; }
  int64_t drafted(int32_t width) const { return drafted_[static_cast<size_t>(width)]; }
  const DraftController& controller() const { return controller_; }

 private:
  std::function<Values(int64_t)> world_;
  DraftController controller_{kWidest};
  int64_t step_ = 0;
  int64_t drafted_[kWidest + 1] = {};
  double tokens_ = 0, seconds_ = 0;
};

// Blocks whose draft head takes `fixed` and `each` a draft, and whose drafts give `gain` tokens each.
Values blocks(double fixed, double each, double gain) {
  Values values;
  for (int32_t width = 1; width <= kWidest; ++width) {
    values.push_back({.tokens = 1 + gain * width, .seconds = 1 + fixed + each * width});
  }
  return values;
}

TEST(DraftController, GivesUpAfterAWhileAndGoesOnWhenATrialPays) {
  bool easy = false;
  Simulation simulation([&](int64_t) { return easy ? blocks(0.1, 0.01, 0.5) : blocks(0.3, 0, 0.02); });
  simulation.run(DraftController::kPatience);
  EXPECT_EQ(simulation.drafted(kWidest), DraftController::kPatience);
  EXPECT_EQ(simulation.controller().width(), 0);
  simulation.run(10 * DraftController::kTrialInterval);
  EXPECT_EQ(simulation.drafted(kWidest), DraftController::kPatience + 10) << "one step in 32 looks";
  EXPECT_EQ(simulation.drafted(0), 310);
  easy = true;
  simulation.run(DraftController::kTrialInterval);
  EXPECT_EQ(simulation.controller().width(), kWidest);
}

TEST(DraftController, FindsTheWidthThatIsWorthMost) {
  // Two drafts are always right and others never.
  Simulation simulation([](int64_t) {
    Values values = blocks(0.05, 0.05, 0);
    for (size_t i = 0; i < values.size(); ++i) values[i].tokens = std::min<double>(3, 2 + static_cast<double>(i));
    return values;
  });
  simulation.run(1000);
  EXPECT_EQ(simulation.controller().width(), 2);
  EXPECT_LT(simulation.drafted(kWidest), DraftController::kPatience + 1000 / DraftController::kTrialInterval + 1);
  EXPECT_GT(simulation.speedup(), 0.99 * 3 / 1.15);
}

TEST(DraftController, WidensWhenTextsGetEasier) {
  bool easy = false;
  Values hard = blocks(0.1, 0.25, 0.2);
  hard[0].tokens = 1.9;
  Simulation simulation([&](int64_t) { return easy ? blocks(0.1, 0.05, 0.9) : hard; });
  simulation.run(200);
  EXPECT_EQ(simulation.controller().width(), 1);
  easy = true;
  simulation.run(5 * DraftController::kTrialInterval);
  EXPECT_EQ(simulation.controller().width(), kWidest);
}

TEST(DraftController, OneStepDearerThanItsCreditDoesNotStopItForEver) {
  Simulation simulation([](int64_t step) { return step == 0 ? blocks(5, 0, 0) : blocks(0.1, 0, 0.5); });
  simulation.run(1900);
  EXPECT_GT(simulation.drafted(0), 0);
  EXPECT_EQ(simulation.controller().width(), kWidest);
}

TEST(DraftController, AFewBadStepsDoNotStopIt) {
  Simulation simulation([](int64_t step) { return blocks(0.3, 0, step % 4 == 0 ? 0.2 : 0.04); });
  simulation.run(1000);
  EXPECT_EQ(simulation.drafted(0), 0);
  EXPECT_GT(simulation.speedup(), 1.05);
}

// Draft heads from nearly free to hopeless, drafts from useless to useful, that stay so, change by the step, or change
// in the meanest way: they pay until they are tried.
TEST(DraftController, NeverLosesMoreThanThreePercentOfAThousandSteps) {
  double worst = 2;
  const auto check = [&](const std::string& what, std::function<Values(int64_t)> world) {
    Simulation simulation(std::move(world));
    simulation.run(1000);
    EXPECT_GT(simulation.speedup(), 0.97) << what;
    worst = std::min(worst, simulation.speedup());
  };
  for (const double fixed : {0.01, 0.1, 0.3, 1.0, 3.0, 10.0}) {
    for (const double each : {0.0, 0.02, 0.2}) {
      for (const double gain : {0.0, 0.05, 0.3, 0.9}) {
        const std::string what =
            std::to_string(fixed) + " + " + std::to_string(each) + " a draft, gain " + std::to_string(gain);
        check(what, [=](int64_t) { return blocks(fixed, each, gain); });
        check(what + ", by chance", [=](int64_t step) {
          return blocks(fixed, each, random_uniform(1, static_cast<uint64_t>(step), 0) < 0.3 ? gain : 0);
        });
        check(what + ", by turns", [=](int64_t step) { return blocks(fixed, each, step / 100 % 2 == 0 ? gain : 0); });
        int64_t last = -2;
        check(what + ", only alone", [=](int64_t step) mutable {
          const bool alone = step > last + 1;
          last = step;
          return blocks(fixed, each, alone ? gain : 0);
        });
      }
    }
  }
  std::printf("  the worst of all: %.4f of the speed without drafts\n", worst);
}

}  // namespace
}  // namespace folio
