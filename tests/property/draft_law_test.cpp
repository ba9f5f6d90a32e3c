// The row law of drafting: whatever rides along in the step and in the draft, however the prompt was cut, wherever the
// slot lies, a request's proposals and their confidences have the bits of its solo run.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "engine/sequence.h"
#include "support/small_model.h"

namespace folio {
namespace {

using Random = std::mt19937_64;

int64_t uniform(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct Proposal {
  std::vector<int32_t> tokens;
  std::vector<float> confidences, logits;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const ModelFiles& nano() {
  static const ModelFiles files = ModelFiles::open(test::small_model("nano"));
  return files;
}

RunnerOptions options(const std::string& isa, int32_t width) {
  RunnerOptions options;
  options.isa = isa;
  options.max_model_len = 256;
  options.max_rows = 256;
  options.max_head_rows = 8;
  options.max_num_seqs = 6;
  options.num_speculative_tokens = width;
  return options;
}

// Rows of `tokens` from the sequence's position up to `end`. The last row of the known tokens, `end`, takes the token
// behind it as its sample and drafts.
void add_rows(ModelRunner& runner, Sequence& sequence, const std::vector<int32_t>& tokens, int64_t end, bool drafts) {
  const int64_t first = sequence.position();
  sequence.begin_span(end - first);
  for (int64_t p = first; p < end; ++p) runner.builder().add_row({.value = tokens[static_cast<size_t>(p)]});
  if (!drafts) return;
  runner.builder().add_sampled_row({.forced = tokens[static_cast<size_t>(end)]});
  runner.builder().add_draft();
}

std::vector<Proposal> run(ModelRunner& runner) {
  const Step step = runner.builder().step();
  runner.run();
  const DraftOutputs outputs = runner.draft(step);
  const int64_t width = step.draft.width, vocab = runner.config().vocab_size;
  std::vector<Proposal> proposals;
  for (int64_t i = 0; i < step.draft.num_requests; ++i) {
    const int32_t* tokens = outputs.tokens + i * width;
    const float *confidences = outputs.confidences + i * width, *logits = outputs.logits + i * width * vocab;
    proposals.push_back(
        {{tokens, tokens + width}, {confidences, confidences + width}, {logits, logits + width * vocab}});
  }
  return proposals;
}

Proposal alone(ModelRunner& runner, const std::vector<int32_t>& tokens, int64_t end) {
  std::memset(runner.states().data(), 0xff, static_cast<size_t>(runner.states().bytes()));
  Sequence sequence(runner);
  runner.builder().clear();
  add_rows(runner, sequence, tokens, end, true);
  return run(runner).front();
}

void check(const std::string& isa, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Random random(static_cast<uint64_t>(round) + 7);
    const auto width = static_cast<int32_t>(uniform(random, 1, 5));
    RunnerOptions crowd_options = options(isa, width), solo_options = options(isa, width);
    crowd_options.threads = static_cast<int>(uniform(random, 1, 3));
    crowd_options.cache_format.packed = uniform(random, 0, 1) == 0;
    solo_options.threads = 1;
    ModelRunner crowd(nano(), crowd_options), solo(nano(), solo_options);
    std::memset(crowd.states().data(), 0xff, static_cast<size_t>(crowd.states().bytes()));

    struct Member {
      std::vector<int32_t> tokens;
      std::unique_ptr<Sequence> sequence;
    };
    std::vector<Member> members(static_cast<size_t>(uniform(random, 2, 6)));
    for (Member& member : members) {
      for (int i = 0; i < 60; ++i) member.tokens.push_back(static_cast<int32_t>(uniform(random, 3, 500)));
      member.sequence = std::make_unique<Sequence>(crowd);
    }
    for (int step = 0; step < 9; ++step) {
      std::shuffle(members.begin(), members.end(), random);
      crowd.builder().clear();
      std::vector<const Member*> drafting;
      bool any = false;
      for (Member& member : members) {
        const int64_t left = std::ssize(member.tokens) - 1 - member.sequence->position();
        if (left == 0 || uniform(random, 0, 3) == 0) continue;
        const int64_t rows = uniform(random, 0, 1) == 0 ? 1 : uniform(random, 1, std::min<int64_t>(left, 25));
        const bool drafts = uniform(random, 0, 2) > 0;
        add_rows(crowd, *member.sequence, member.tokens, member.sequence->position() + rows, drafts);
        if (drafts) drafting.push_back(&member);
        any = true;
      }
      if (!any) continue;
      const std::vector<Proposal> proposals = run(crowd);
      ASSERT_EQ(proposals.size(), drafting.size());
      for (size_t i = 0; i < drafting.size(); ++i) {
        const int64_t end = drafting[i]->sequence->position();
        const Proposal expected = alone(solo, drafting[i]->tokens, end);
        EXPECT_EQ(proposals[i].tokens, expected.tokens) << "round " << round << " behind " << end << " tokens";
        ASSERT_TRUE(same_bits(proposals[i].confidences, expected.confidences)) << "round " << round;
        ASSERT_TRUE(same_bits(proposals[i].logits, expected.logits)) << "round " << round;
      }
    }
  }
}

TEST(DraftLaw, Reference) { check("ref", 1); }
TEST(DraftLaw, Cpu) { check("", 12); }
TEST(DraftLaw, Scalar) { check("scalar", 2); }

// Two drafts of the same request differ where their anchors do.
TEST(DraftLaw, TheAnchorMatters) {
  ModelRunner runner(nano(), options("", 5));
  std::vector<int32_t> tokens(41);
  std::iota(tokens.begin(), tokens.end(), 50);
  const Proposal one = alone(runner, tokens, 40);
  tokens.back() += 1;
  EXPECT_FALSE(same_bits(one.logits, alone(runner, tokens, 40).logits));
}

}  // namespace
}  // namespace folio
