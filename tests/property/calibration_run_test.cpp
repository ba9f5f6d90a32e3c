// What calibration observes in a running engine, and how it times steps.
#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/calibration_run.h"
#include "support/small_model.h"

namespace folio {
namespace {

constexpr int32_t kWidth = 5;

RunnerOptions options(int32_t seqs) {
  RunnerOptions made;
  made.threads = 1;
  made.max_model_len = 200;
  made.max_num_seqs = seqs;
  made.max_rows = 128;
  made.max_head_rows = seqs * (kWidth + 1);
  made.num_speculative_tokens = kWidth;
  return made;
}

std::shared_ptr<Request> request(int32_t first, int64_t tokens) {
  auto made = std::make_shared<Request>();
  for (int32_t i = 0; i < 20; ++i) made->prompt.push_back(3 + (first + 7 * i) % 400);
  made->max_tokens = tokens;
  made->ignore_eos = true;
  made->sampling = {.temperature = 0.8f, .seed = static_cast<uint64_t>(first)};
  return made;
}

const CalibrationProgress kSilent = [](const std::string&, double) {};

TEST(CalibrationRun, ReadsTheFateOfDraftsOffTheAnswers) {
  const ModelFiles files = ModelFiles::open(test::small_model("nano"));
  ModelRunner runner(files, options(2));
  int64_t accepted = 0;
  for (int32_t first = 1; first <= 5; ++first) {
    const ObservedDrafts observed = observe_drafts(runner, {request(first, 60)}, kSilent);
    EXPECT_EQ(observed.text.size(), 20u + 60u);
    // Every draft was verified: blocks lie end to end, each with its accepted drafts and the token behind them. The
    // first token comes from the prefill, and nobody drafts for the last two.
    int64_t tokens = 1;
    for (const DraftBlock& block : observed.blocks) {
      EXPECT_EQ(block.logits.size(), static_cast<size_t>(kWidth));
      EXPECT_LE(block.accepted, block.known);
      EXPECT_LE(block.known, kWidth);
      tokens += 1 + block.accepted;
      accepted += block.accepted;
    }
    EXPECT_LE(tokens, 60 + 1);
    EXPECT_GE(tokens, 60 - 3);
  }
  EXPECT_GT(accepted, 0);
}

TEST(CalibrationRun, CompanyChangesNoBlock) {
  const ModelFiles files = ModelFiles::open(test::small_model("nano"));
  ModelRunner alone(files, options(1)), together(files, options(3));
  std::vector<std::shared_ptr<Request>> requests;
  std::vector<DraftBlock> one_by_one;
  for (int32_t first = 1; first <= 6; ++first) {
    const ObservedDrafts observed = observe_drafts(alone, {request(first, 30)}, kSilent);
    one_by_one.insert(one_by_one.end(), observed.blocks.begin(), observed.blocks.end());
    requests.push_back(request(first, 30));
  }
  const ObservedDrafts observed = observe_drafts(together, requests, kSilent);
  ASSERT_EQ(observed.blocks.size(), one_by_one.size());
  for (size_t i = 0; i < one_by_one.size(); ++i) {
    EXPECT_EQ(observed.blocks[i].logits, one_by_one[i].logits) << i;
    EXPECT_EQ(observed.blocks[i].accepted, one_by_one[i].accepted) << i;
    EXPECT_EQ(observed.blocks[i].known, one_by_one[i].known) << i;
  }
}

TEST(CalibrationRun, RefusedPromptsAreNamed) {
  const ModelFiles files = ModelFiles::open(test::small_model("nano"));
  ModelRunner runner(files, options(1));
  auto longer = request(1, 10);
  longer->prompt.resize(200, 5);
  EXPECT_THROW(observe_drafts(runner, {request(2, 10), longer}, kSilent), Error);
}

TEST(CalibrationRun, TimesEveryKindOfStepAndStopsWhenTold) {
  const ModelFiles files = ModelFiles::open(test::small_model("nano"));
  ModelRunner runner(files, options(3));  // contexts of 200: sequences begin again and again
  const std::vector<int32_t> text = {5, 6, 7, 8, 9, 10, 11};
  const MeasureLimits limits{.max_num_seqs = 3, .seconds = 0};
  EXPECT_THROW(
      measure_steps(runner, text, limits, [](const std::string&, double) { throw std::runtime_error("enough"); }),
      std::runtime_error);
  const MeasuredSteps measured = measure_steps(runner, text, limits, kSilent);  // the slots are free again
  EXPECT_EQ(measured.rounds, MeasureLimits::kLeastRounds);
  EXPECT_EQ(measured.points.size(), 3u * (kWidth + 1)) << "1, 2 and 3 requests";
  for (const MeasuredSteps::Point& point : measured.points) EXPECT_GT(point.seconds, 0);
  ASSERT_EQ(measured.drafts.size(), size_t{kWidth});
  for (const auto& points : measured.drafts) {
    ASSERT_EQ(points.size(), 3u);
    EXPECT_EQ(points[2].size, 3);
    EXPECT_GT(points[2].seconds, 0);
  }
  EXPECT_EQ(measured.forwards().back().size, 3 * (kWidth + 1));
}

}  // namespace
}  // namespace folio
