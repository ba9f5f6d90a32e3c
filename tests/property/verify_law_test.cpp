// Verification leaves no trace: whatever drafts a step checks and however many of them are right, the logits of every
// committed row have the bits of a plain decode, in any company, at every position modulo window, page and ratio.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/sequence.h"
#include "support/sanitized.h"
#include "support/small_model.h"

namespace folio {
namespace {

using Random = std::mt19937_64;

int64_t uniform(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// A request and what a plain run of it says.
struct Story {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // [tokens, vocab]
};

class Verification {
 public:
  Verification(const std::string& preset, const std::string& isa)
      : files_(ModelFiles::open(test::small_model(preset))), isa_(isa) {}

  RunnerOptions options(int32_t drafts, int64_t length) const {
    RunnerOptions options;
    options.isa = isa_;
    options.max_model_len = length;
    options.max_rows = static_cast<int32_t>(length);
    options.max_head_rows = options.max_rows;
    options.max_num_seqs = 6;
    options.num_speculative_tokens = drafts;
    return options;
  }

  Story tell(Random& random, int64_t length) const {
    Story story;
    const int64_t vocab = files_.checkpoint.config().vocab_size;
    for (int64_t i = 0; i < length; ++i) story.tokens.push_back(static_cast<int32_t>(uniform(random, 3, vocab - 3)));
    ModelRunner runner(files_, options(0, length));
    Sequence sequence(runner);
    sequence.begin_span(length);
    for (const int32_t id : story.tokens) {
      runner.builder().add_row({.value = id});
      runner.builder().add_head_row();
    }
    const float* logits = runner.run().logits;
    story.logits.assign(logits, logits + length * vocab);
    return story;
  }

  // Runs all stories to their ends side by side: decode rows, spans of a prefill, verifications of 1 to `width` drafts,
  // of which a random number is right. Every row is compared.
  void check(const std::vector<Story>& stories, int32_t width, Random& random) {
    RunnerOptions made = options(width, std::ssize(stories.front().tokens));
    made.cache_format.packed = uniform(random, 0, 1) == 0;
    made.block_size = std::vector<int32_t>{16, 18, 32}[static_cast<size_t>(uniform(random, 0, 2))];
    ModelRunner runner(files_, made);
    std::memset(runner.pages().data(), 0xff, static_cast<size_t>(runner.pages().bytes()));
    std::memset(runner.states().data(), 0xff, static_cast<size_t>(runner.states().bytes()));
    std::vector<Place> places;
    for (const Story& story : stories) places.push_back({&story, *runner.states().ids().allocate(), {}});
    while (true) {
      std::shuffle(places.begin(), places.end(), random);
      std::vector<Span> spans;
      runner.builder().clear();
      for (Place& place : places) {
        if (place.left() > 0 && uniform(random, 0, 3) > 0) spans.push_back(add_span(runner, place, width, random));
      }
      if (!spans.empty()) compare(runner, spans);
      bool done = true;
      for (const Place& place : places) done = done && place.left() == 0;
      if (done) return;
    }
  }

  // How often each number of accepted drafts came at each position modulo window, page and ratio.
  const std::vector<std::vector<int>>& met() const { return met_; }

 private:
  struct Place {
    const Story* story;
    int32_t slot;
    std::vector<int32_t> pages;
    int64_t position = 0;  // committed rows
    int64_t left() const { return std::ssize(story->tokens) - position; }
    int32_t token(int64_t p) const { return story->tokens[static_cast<size_t>(p)]; }
  };
  struct Span {
    Place* place;
    int64_t rows;
    int32_t drafts, right;  // the last `drafts` rows, of which the first `right` are the story's
  };

  // The sample of each head row is forced to what the story says next, so that a draft is accepted if it is right.
  Span add_span(ModelRunner& runner, Place& place, int32_t width, Random& random) {
    const int64_t left = place.left();
    Span span{.place = &place, .rows = 1, .drafts = 0, .right = 0};
    // The last token of a story has no next one, and wrong drafts behind the end have no page.
    if (left > width + 1 && uniform(random, 0, 4) > 0) {
      span.drafts = static_cast<int32_t>(uniform(random, 1, width));
      span.right = static_cast<int32_t>(uniform(random, 0, span.drafts));
      span.rows = 1 + span.drafts;
    } else if (uniform(random, 0, 2) == 0) {
      span.rows = uniform(random, 1, std::min<int64_t>(left, 9));
    }
    while (std::ssize(place.pages) < runner.geometry().pages_for(place.position + span.rows)) {
      place.pages.push_back(*runner.pages().allocate());
    }
    StepBuilder& builder = runner.builder();
    builder.add_request({.slot = place.slot, .restart = place.position == 0, .num_drafts = span.drafts}, place.pages);
    const int64_t vocab = runner.config().vocab_size;
    for (int64_t i = 0; i < span.rows; ++i) {
      int32_t id = place.token(place.position + i);
      const int64_t wrong_from = span.rows - span.drafts + span.right;
      if (i >= wrong_from) id = static_cast<int32_t>((id + uniform(random, 1, vocab - 1)) % vocab);
      builder.add_row({.value = id});
      const int64_t next = std::min(place.position + i + 1, std::ssize(place.story->tokens) - 1);
      builder.add_sampled_row({.forced = place.token(next)}, i + 1 >= span.rows - span.drafts);
    }
    if (uniform(random, 0, 2) == 0) builder.add_draft();
    return span;
  }

  void compare(ModelRunner& runner, const std::vector<Span>& spans) {
    const Step step = runner.builder().step();
    const StepOutputs outputs = runner.run();
    const int64_t vocab = runner.config().vocab_size, window = runner.config().sliding_window;
    int64_t row = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
      const Span& span = spans[i];
      Place& place = *span.place;
      const int64_t committed = span.rows - span.drafts + span.right;
      ASSERT_EQ(outputs.committed[i], committed);
      for (int64_t r = 0; r < committed; ++r) {
        const float* expected = place.story->logits.data() + (place.position + r) * vocab;
        ASSERT_EQ(std::memcmp(outputs.logits + (row + r) * vocab, expected, static_cast<size_t>(vocab) * sizeof(float)),
                  0)
            << "position " << place.position + r << ", " << span.drafts << " drafts, " << span.right << " right";
      }
      if (span.drafts > 0) count(place.position % (2 * window), span.right);
      row += span.rows;
      place.position += committed;
    }
    runner.draft(step);
  }

  void count(int64_t position, int32_t right) {
    met_.resize(std::max(met_.size(), static_cast<size_t>(position) + 1));
    auto& counts = met_[static_cast<size_t>(position)];
    counts.resize(std::max(counts.size(), static_cast<size_t>(right) + 1));
    ++counts[static_cast<size_t>(right)];
  }

  ModelFiles files_;
  std::string isa_;
  std::vector<std::vector<int>> met_;
};

TEST(VerifyLaw, NanoMeetsEveryCountAtEveryPlace) {
  Verification verification("nano", "");
  Random random(3);
  std::vector<Story> stories;
  for (int i = 0; i < (test::kSanitized ? 2 : 4); ++i) stories.push_back(verification.tell(random, 220));
  for (int32_t width = 1; width <= 5; ++width) verification.check(stories, width, random);
  if (test::kSanitized) return;
  for (int round = 0; round < 12; ++round) verification.check(stories, 5, random);
  // Positions modulo twice the window: every residue of window, page (16) and ratio.
  ASSERT_EQ(verification.met().size(), 32u);
  for (const auto& counts : verification.met()) {
    ASSERT_EQ(counts.size(), 6u);
    for (const int times : counts) EXPECT_GT(times, 0);
  }
}

TEST(VerifyLaw, Slots) {
  Verification verification("slots", "");
  Random random(4);
  std::vector<Story> stories;
  for (int i = 0; i < 2; ++i) stories.push_back(verification.tell(random, 400));
  verification.check(stories, 5, random);
}

TEST(VerifyLaw, Reference) {
  Verification verification("nano", "ref");
  Random random(5);
  verification.check({verification.tell(random, 60), verification.tell(random, 60)}, 5, random);
}

}  // namespace
}  // namespace folio
