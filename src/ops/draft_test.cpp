// What begins and ends a verification: accepted drafts, what a commit keeps of a span, the rows of the next block.
#include "ops/draft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/ops.h"

namespace folio {
namespace {

// A span of two known rows and three drafts, 11, 12 and 13, behind a decode row of another request.
struct Verification {
  std::vector<RequestSpan> spans = {
      {.first_row = 0, .num_rows = 1, .slot = 1, .sampled_row = 0},
      {.first_row = 1, .num_rows = 5, .slot = 0, .sampled_row = 1, .num_drafts = 3},
      {.first_row = 6, .num_rows = 2, .slot = 2},  // a chunk without a sample
  };
  std::vector<int32_t> ids = {7, 9, 10, 11, 12, 13, 4, 5};
  std::vector<int32_t> compressed = {70, 90, 100, 110, 120, 130, 40, 50};
  std::vector<int32_t> sampled;
  std::vector<int32_t> committed = std::vector<int32_t>(3, -1);
  std::array<SlotCursor, 3> cursors{};
  std::unique_ptr<Ops> ops = make_reference_ops();

  explicit Verification(std::vector<int32_t> samples) : sampled(std::move(samples)) {
    cursors[0] = {.position = 20, .last_token = 1, .history = {1, 2, 3, 4, 5, 6, 7}};
    cursors[1] = {.position = 5, .last_token = 2, .history = {}};
  }
  StepInputs inputs() const { return {.num_rows = 8, .num_requests = 3, .num_head_rows = 5, .spans = spans.data()}; }
  void run() {
    ops->verify({.inputs = inputs(), .ids = ids.data(), .sampled = sampled.data(), .committed = committed.data()});
    ops->commit({.inputs = inputs(),
                 .cursors = reinterpret_cast<std::byte*>(cursors.data()),
                 .cursor_stride = sizeof(SlotCursor),
                 .compressed = compressed.data(),
                 .sampled = sampled.data(),
                 .committed = committed.data()});
  }
};

TEST(Verify, AcceptsTheDraftsThatWereSampled) {
  struct Expected {
    std::vector<int32_t> samples;  // of the decode row, then of the anchor's row and each draft's
    int32_t rows, last;
    std::array<int32_t, 3> history;
  };
  for (const Expected& expected : {
           Expected{{8, 99, 12, 13, 14}, 2, 99, {100, 90, 1}},  // none: the known rows are committed all the same
           Expected{{8, 11, 98, 13, 14}, 3, 98, {110, 100, 90}},
           Expected{{8, 11, 12, 97, 14}, 4, 97, {120, 110, 100}},
           Expected{{8, 11, 12, 13, 14}, 5, 14, {130, 120, 110}},
       }) {
    Verification step(expected.samples);
    step.run();
    EXPECT_EQ(step.committed, (std::vector<int32_t>{1, expected.rows, 2}));
    EXPECT_EQ(step.cursors[0].position, 20 + expected.rows);
    EXPECT_EQ(step.cursors[0].last_token, expected.last);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(step.cursors[0].history[i], expected.history[i]);
    EXPECT_EQ(step.cursors[0].history[expected.rows], 1) << "the history before the step";
    EXPECT_EQ(step.cursors[1].position, 6);
    EXPECT_EQ(step.cursors[1].last_token, 8);
    EXPECT_EQ(step.cursors[2].position, 2);
    EXPECT_EQ(step.cursors[2].last_token, 0) << "no sample, no last token";
    EXPECT_EQ(step.sampled, expected.samples) << "samples stay what they are";
  }
}

TEST(Verify, ForcedDraftsTakeThePlaceOfTheSamples) {
  for (const int32_t forced : {0, 1, 2, 3, 9}) {
    Verification step({8, 11, 98, 97, 96});
    step.spans[1].forced_accepts = forced;
    step.run();
    const int32_t accepted = std::min(forced, 3);
    EXPECT_EQ(step.committed[1], 2 + accepted);
    const std::vector<int32_t> drafts = {11, 12, 13}, samples = {11, 98, 97, 96};
    for (int32_t i = 0; i < 4; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(step.sampled[1 + at], i < accepted ? drafts[at] : samples[at]) << forced;
    }
    EXPECT_EQ(step.cursors[0].last_token, samples[static_cast<size_t>(accepted)]);
  }
}

TEST(BeginDraft, TheAnchorStandsAtTheCursorAndNoiseBehindIt) {
  std::array<SlotCursor, 4> cursors{};
  cursors[3] = {.position = 40, .last_token = 17, .history = {}};
  cursors[1] = {.position = 9, .last_token = 5, .history = {}};
  const std::vector<RequestSpan> spans = {{.first_row = 0, .num_rows = 3, .slot = 3},
                                          {.first_row = 3, .num_rows = 3, .slot = 1}};
  const std::vector<int32_t> request = {0, 0, 0, 1, 1, 1};
  const std::vector<float> frequencies = {1.0f, 0.25f};
  std::vector<int32_t> ids(6), positions(6);
  std::vector<uint8_t> image(6, 1);
  std::vector<float> rope(6 * 2 * 2);
  make_reference_ops()->begin_draft(
      {.inputs = {.num_requests = 2, .width = 3, .spans = spans.data(), .row_request = request.data()},
       .cursors = reinterpret_cast<const std::byte*>(cursors.data()),
       .cursor_stride = sizeof(SlotCursor),
       .noise = 500,
       .rope_pairs = 2,
       .frequencies = frequencies.data(),
       .ids = ids.data(),
       .positions = positions.data(),
       .image = image.data(),
       .rope = rope.data()});
  EXPECT_EQ(ids, (std::vector<int32_t>{17, 500, 500, 5, 500, 500}));
  EXPECT_EQ(positions, (std::vector<int32_t>{40, 41, 42, 9, 10, 11}));
  EXPECT_EQ(image, std::vector<uint8_t>(6, 0));
  EXPECT_EQ(rope[4], static_cast<float>(std::cos(41.0)));
  EXPECT_EQ(rope[7], static_cast<float>(std::sin(41 * 0.25)));
}

}  // namespace
}  // namespace folio
