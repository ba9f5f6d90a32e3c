// Dynamic verification changes how fast an answer comes, never the answer: engines with synthetic profiles against
// plain solo runs, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/calibration_profile.h"
#include "engine/scenario.h"
#include "support/small_model.h"

namespace folio {
namespace {

constexpr int32_t kWidth = 5;
constexpr int32_t kSeqs = 6;

// A forward of r rows takes 1 + slope * r, the draft head `draft`.
std::shared_ptr<CalibrationProfile> profile(double slope, double draft) {
  auto made = std::make_shared<CalibrationProfile>();
  made->draft_width = kWidth;
  made->max_num_seqs = kSeqs;
  for (int32_t row = 0; row <= kSeqs * (kWidth + 1); ++row) {
    made->costs.steps_per_second.push_back(1 / (1 + slope * row));
  }
  made->costs.draft_seconds.assign(kWidth, std::vector<double>(kSeqs + 1, draft));
  made->temperatures.assign(kWidth, 1.0);
  return made;
}

class DynamicVerification : public ::testing::Test {
 protected:
  DynamicVerification()
      : files_(ModelFiles::open(test::small_model("nano"))),
        solo_(files_, Scene::sizes(files_.checkpoint.config(), options_)),
        scene_(files_, options_, true, solo_, result_) {
    scene_.runner_options().num_speculative_tokens = kWidth;
    scene_.engine_config().num_speculative_tokens = kWidth;
    scene_.engine_config().max_num_seqs = std::min(scene_.engine_config().max_num_seqs, kSeqs);
  }
  ~DynamicVerification() override {
    for (const std::string& failure : result_.failures) ADD_FAILURE() << failure;
  }

  // `requests` answers of `tokens` tokens at once; they are compared with solo runs.
  SpeculationStats run(std::shared_ptr<CalibrationProfile> profile, int64_t requests, int64_t tokens) {
    scene_.engine_config().profile = std::move(profile);
    scene_.start();
    for (int64_t i = 0; i < requests; ++i) {
      Request request = scene_.request(scene_.prompt(5 + i, 40 + static_cast<uint64_t>(i)), tokens);
      if (i % 2 == 1) request.sampling = {.temperature = 0.9f, .seed = static_cast<uint64_t>(i)};
      scene_.engine().submit(std::move(request));
    }
    scene_.finish();
    return scene_.engine().core().scheduler().stats().speculation;
  }

  const ValidationOptions options_;
  ModelFiles files_;
  SoloRunner solo_;
  ScenarioResult result_;
  Scene scene_;
};

TEST_F(DynamicVerification, FreeRowsVerifyAllDrafts) {
  const SpeculationStats stats = run(profile(0, 1e-9), 4, 40);
  ASSERT_EQ(stats.lengths.size(), kWidth + 1u);
  // Shorter ones end where an answer does, or where an image of the state is due.
  EXPECT_GT(stats.lengths[kWidth], 10 * stats.lengths[0]);
  EXPECT_GT(stats.lengths[kWidth], 0);
  EXPECT_EQ(stats.skipped_steps, 0);
}

TEST_F(DynamicVerification, LengthsAreRagged) {
  const SpeculationStats stats = run(profile(0.12, 1e-9), 4, 60);
  int used = 0;
  for (const int64_t count : stats.lengths) used += count > 0;
  EXPECT_GE(used, 3) << "lengths of one or two kinds only";
  EXPECT_GT(stats.verifications, 0);
}

TEST_F(DynamicVerification, DraftingThatDoesNotPayStops) {
  const SpeculationStats stats = run(profile(0.2, 1.0), 2, 100);
  // Sixteen steps at most before it is given up, then a trial now and then.
  EXPECT_GT(stats.skipped_steps, 60);
  EXPECT_LT(stats.drafted_tokens(), 2 * 20 * kWidth);
}

TEST_F(DynamicVerification, DraftingGoesOnWhereItPays) {
  const SpeculationStats stats = run(profile(0.01, 0.01), 2, 100);
  EXPECT_EQ(stats.skipped_steps, 0);
}

// Rows are free up to the fourth of a step and very dear behind it: among four requests drafts never pay, for one that
// is alone they do. Four run, then one of them on its own, then it has company again.
TEST_F(DynamicVerification, DraftingStopsGoesOnAndStopsAgain) {
  auto made = profile(0, 1e-2);
  for (size_t row = 5; row < made->costs.steps_per_second.size(); ++row) made->costs.steps_per_second[row] = 0.1;
  scene_.engine_config().profile = made;
  EngineProbe& engine = scene_.start();
  const auto stats = [&] { return engine.core().scheduler().stats().speculation; };
  const auto submit = [&](uint64_t number, int64_t tokens) {
    Request request = scene_.request(scene_.prompt(5 + static_cast<int64_t>(number), number), tokens);
    if (number % 2 == 1) request.sampling = {.temperature = 0.9f, .seed = number};
    engine.submit(std::move(request));
  };
  submit(0, 250);
  for (uint64_t i = 1; i < 4; ++i) submit(i, 40);
  scene_.step_until("giving up", [&] { return stats().skipped_steps > 5; });
  EXPECT_EQ(stats().verifications, 0);
  scene_.step_until("one request", [&] { return engine.core().scheduler().states().size() == 1; });
  const int64_t skipped = stats().skipped_steps;
  scene_.step_until("drafts that pay", [&] { return stats().verifications > 10; });
  EXPECT_LE(stats().skipped_steps, skipped + DraftController::kTrialInterval);
  for (uint64_t i = 5; i < 8; ++i) submit(i, 60);
  const int64_t resumed = stats().skipped_steps;
  scene_.step_until("giving up again", [&] { return stats().skipped_steps > resumed + 5; });
  scene_.finish();
}

TEST_F(DynamicVerification, NarrowerBlocksWhereWideOnesAreDear) {
  auto made = profile(0, 1e-2);
  for (size_t width = 3; width < size_t{kWidth}; ++width) {
    for (double& seconds : made->costs.draft_seconds[width]) seconds = 0.5;
  }
  const SpeculationStats stats = run(made, 2, 100);
  ASSERT_EQ(stats.widths.size(), size_t{kWidth} + 1);
  EXPECT_GT(std::max({stats.widths[1], stats.widths[2], stats.widths[3]}), 20);
  EXPECT_LT(stats.widths[kWidth], 2 * (2 + DraftController::kPatience + 4));
}

TEST_F(DynamicVerification, TheConfigurationIsChecked) {
  const auto refused = [&](const std::string& says, auto change) {
    EngineConfig config = scene_.engine_config();
    config.profile = profile(0, 1);
    change(config);
    try {
      resolve(config, solo_.runner().config(), solo_.runner().topology(), solo_.runner().geometry());
      ADD_FAILURE() << "accepted: " << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refused("--dspark-profile needs --speculative dspark", [](EngineConfig& c) { c.num_speculative_tokens = 0; });
  refused("leave one out", [](EngineConfig& c) { c.forced_acceptance_length = 2; });
  refused("--num-speculative-tokens is 3", [](EngineConfig& c) { c.num_speculative_tokens = 3; });
  refused("covers 6 requests at once", [](EngineConfig& c) { c.max_num_seqs = 7; });
  refused("sts_temperatures[0]", [](EngineConfig& c) {
    auto broken = profile(0, 1);
    broken->temperatures[0] = 0;
    c.profile = broken;
  });
}

}  // namespace
}  // namespace folio
