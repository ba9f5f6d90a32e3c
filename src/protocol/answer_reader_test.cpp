// Answers as tokens: the reader and the policy of the engine, with a small tokenizer that has the chat's own tokens.
#include "protocol/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "protocol/chat_policy.h"
#include "protocol/test_util.h"

namespace folio {
namespace {

const std::string kCall =
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"k\" string=\"true\">é😀</｜DSML｜ "
    "parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

class Answers : public testing::Test {
 protected:
  static std::vector<int32_t> ids(const std::string& text) { return tokenizer().encode(text); }

  static const Tokenizer& tokenizer() {
    static const Tokenizer tokenizer =
        make_tokenizer(small_tokenizer({{"a", "b"}, {"n", "a"}, {"na", "m"}, {"\xF0", "\x9F"}, {"\xF0\x9F", "\x98"}},
                                       {"<think>", "</think>", "｜DSML｜", "<｜User｜>", "<｜Assistant｜>",
                                        "<｜System｜>", "<｜ref｜>", "<｜/ref｜>"}));
    return tokenizer;
  }

  static ParsedAnswer read(const ParserOptions& options, const std::vector<int32_t>& answer, AnswerEnd end) {
    AnswerReader reader(tokenizer(), options);
    std::vector<Delta> deltas;
    for (const int32_t id : answer) reader.push(id, deltas);
    reader.finish(end, deltas);
    ParsedAnswer parsed;
    parsed.add(deltas);
    return parsed;
  }
};

const ParserOptions kReasons{.start = AnswerStart::kReasoning, .calls = true};

TEST_F(Answers, TokensToFields) {
  const ParsedAnswer answer = read(kReasons, ids("hm 😀</think>é!" + kCall), AnswerEnd::kStop);
  EXPECT_EQ(answer.reasoning, "hm 😀");
  EXPECT_EQ(answer.content, "é!");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, R"({"k": "é😀"})");
}

TEST_F(Answers, ControlTokensAreNoText) {
  const ParsedAnswer answer =
      read({}, ids("a<｜User｜>b<｜System｜>c<｜end▁of▁sentence｜><｜ref｜>d<｜/ref｜>"), AnswerEnd::kStop);
  EXPECT_EQ(answer.content, "abc<｜ref｜>d<｜/ref｜>");
}

TEST_F(Answers, UnfinishedCharacterAtTheEnd) {
  std::vector<int32_t> cut = ids("a😀");
  cut.pop_back();
  EXPECT_EQ(read({}, cut, AnswerEnd::kLength).content, "a\uFFFD");
  AnswerReader reader(tokenizer(), {});
  std::vector<Delta> deltas;
  EXPECT_THROW(reader.push(tokenizer().vocab_size(), deltas), Error);
}

TEST_F(Answers, CountsReasoningTokens) {
  AnswerReader reader(tokenizer(), kReasons);
  std::vector<Delta> deltas;
  for (const int32_t id : ids("abab</think>ab")) reader.push(id, deltas);
  EXPECT_EQ(reader.reasoning_tokens(), 3);
}

TEST_F(Answers, StopIdsAreThoseOfTheVocabulary) {
  EXPECT_EQ(chat_stop_ids(tokenizer()),
            (std::vector<int32_t>{*tokenizer().find_added("<｜User｜>"), *tokenizer().find_added("<｜Assistant｜>")}));
  EXPECT_TRUE(chat_stop_ids(make_tokenizer(small_tokenizer())).empty());
}

// Where a policy ends an answer: how many of its tokens it takes.
class Policies : public Answers {
 protected:
  static size_t taken(ChatPolicy& policy, const std::vector<int32_t>& answer) {
    for (size_t i = 0; i < answer.size(); ++i) {
      if (policy.accept(answer[i]) == PolicyVerdict::kStop) return i + 1;
    }
    return answer.size() + 1;
  }
  static ChatPolicy policy(ParserOptions options) { return {tokenizer(), {.parser = std::move(options)}}; }

  static std::vector<uint64_t> all_bits() {
    return std::vector<uint64_t>(static_cast<size_t>(tokenizer().vocab_size()) / 64 + 1, ~uint64_t{0});
  }
  static bool allows(const std::vector<uint64_t>& bits, int32_t id) {
    return (bits[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0;
  }
};

TEST_F(Policies, EndAfterStopStringsAndCalls) {
  ParserOptions options = kReasons;
  options.stops = {"ab!"};
  const auto expect = [&](const std::string& text, const std::string& before_end) {
    ChatPolicy policy(tokenizer(), {.parser = options});
    EXPECT_EQ(taken(policy, ids(text)), ids(before_end).size()) << text;
  };
  expect("ab!</think>xab!ab", "ab!</think>xab!");
  expect("r</think>x" + kCall + "more", "r</think>x" + kCall);
  ChatPolicy never = policy(options);
  EXPECT_EQ(taken(never, ids("ab!</think>ab")), ids("ab!</think>ab").size() + 1);
}

TEST_F(Policies, MaskNothingByThemselves) {
  ChatPolicy free = policy(kReasons);
  std::vector<uint64_t> bits = all_bits();
  EXPECT_FALSE(free.mask(bits));
  EXPECT_EQ(bits, all_bits());
}

TEST_F(Policies, ThinkingBudgetForcesItsEnd) {
  ChatPolicy limited(tokenizer(), {.parser = kReasons, .thinking_budget = 2, .grammar = nullptr});
  std::vector<uint64_t> bits = all_bits();
  EXPECT_FALSE(limited.mask(bits));
  taken(limited, ids("xy"));
  EXPECT_TRUE(limited.mask(bits));
  int64_t allowed = 0;
  for (int32_t id = 0; id < tokenizer().vocab_size(); ++id) allowed += allows(bits, id) ? 1 : 0;
  EXPECT_EQ(allowed, 1);
  EXPECT_TRUE(allows(bits, *tokenizer().find_added("</think>")));
  taken(limited, ids("</think>"));
  bits = all_bits();
  EXPECT_FALSE(limited.mask(bits));
}

// A grammar that takes one text and records what it is told.
class OneText final : public TokenPolicy {
 public:
  OneText(std::vector<int32_t> text, std::vector<int32_t>* seen) : text_(std::move(text)), seen_(seen) {}
  bool mask(std::span<uint64_t> bits) override {
    std::fill(bits.begin(), bits.end(), 0);
    const int32_t next = text_.at(seen_->size());
    bits[static_cast<size_t>(next) / 64] |= uint64_t{1} << (next % 64);
    return true;
  }
  PolicyVerdict accept(int32_t id) override {
    EXPECT_EQ(id, text_.at(seen_->size()));
    seen_->push_back(id);
    return seen_->size() == text_.size() ? PolicyVerdict::kStop : PolicyVerdict::kContinue;
  }
  void rollback(int32_t count) override { seen_->resize(seen_->size() - static_cast<size_t>(count)); }

 private:
  std::vector<int32_t> text_;
  std::vector<int32_t>* seen_;
};

TEST_F(Policies, GrammarsActBehindTheReasoning) {
  std::vector<int32_t> seen;
  ParserOptions options{.start = AnswerStart::kReasoning};
  ChatPolicy policy(tokenizer(), {.parser = options, .grammar = std::make_unique<OneText>(ids("{1}"), &seen)});
  std::vector<uint64_t> bits = all_bits();
  EXPECT_TRUE(policy.mask(bits));
  EXPECT_FALSE(allows(bits, 1)) << "the answer may not end while it reasons";
  EXPECT_FALSE(allows(bits, *tokenizer().find_added("｜DSML｜")));
  EXPECT_TRUE(allows(bits, ids("x")[0]));
  taken(policy, ids("x{</think>"));
  EXPECT_TRUE(seen.empty());
  bits = all_bits();
  EXPECT_TRUE(policy.mask(bits));
  EXPECT_TRUE(allows(bits, ids("{")[0]));
  EXPECT_FALSE(allows(bits, ids("x")[0]));
  EXPECT_EQ(taken(policy, ids("{1}")), 3u);
  EXPECT_EQ(seen, ids("{1}"));
  policy.rollback(2);
  EXPECT_EQ(seen, ids("{"));
  policy.rollback(2);  // over </think>
  EXPECT_TRUE(seen.empty());
  taken(policy, ids("yz</think>{"));
  EXPECT_EQ(seen, ids("{"));
}

TEST_F(Policies, GrammarsActAtOnceWithoutReasoning) {
  std::vector<int32_t> seen;
  ChatPolicy policy(tokenizer(), {.parser = {}, .grammar = std::make_unique<OneText>(ids("ok"), &seen)});
  EXPECT_EQ(taken(policy, ids("ok")), 2u);
}

// A policy that guesses, forgets and goes on ends where one that never guessed does.
TEST_F(Policies, RollbackForgetsEverything) {
  ParserOptions options = kReasons;
  options.stops = {"STOP"};
  std::string text;
  for (int i = 0; i < 40; ++i) text += "thinking ";
  text += "</think>";
  for (int i = 0; i < 40; ++i) text += "STO P ";
  const std::vector<int32_t> answer = ids(text + "STOP");
  const std::vector<int32_t> wrong = ids("</think>STOP");
  Draws draws(5);
  for (int round = 0; round < 30; ++round) {
    ChatPolicy policy(tokenizer(), {.parser = options});
    size_t at = 0;
    while (at + 1 < answer.size()) {
      const size_t forward = std::min(draws.below(150), answer.size() - 1 - at);
      for (size_t i = 0; i < forward; ++i) ASSERT_EQ(policy.accept(answer[at + i]), PolicyVerdict::kContinue);
      at += forward;
      for (const int32_t id : wrong) policy.accept(id);
      const size_t back = std::min(draws.below(4) == 0 ? draws.below(400) : draws.below(8), at);
      policy.rollback(static_cast<int32_t>(wrong.size() + back));
      at -= back;
      if (draws.below(10) == 0) break;
    }
    for (; at + 1 < answer.size(); ++at) ASSERT_EQ(policy.accept(answer[at]), PolicyVerdict::kContinue);
    EXPECT_EQ(policy.accept(answer[at]), PolicyVerdict::kStop);
  }
}

// The shared vectors as tokens of the published vocabulary, which the model would write.
TEST(PublishedAnswers, VectorsAsTokens) {
  if (published() == nullptr) GTEST_SKIP() << "run tools/fetch_tokenizer.py for the published tokenizer";
  const Json vectors = Json::parse(*read_text(kVectors + "dsml/completion_parse_vectors.json"));
  for (const Json& vector : *vectors.array()) {
    const bool reasons = text_of(vector, "starts_in") == "reasoning";
    const ParserOptions options{.start = reasons ? AnswerStart::kReasoning : AnswerStart::kContent,
                                .calls = true,
                                .tools = std::make_shared<const std::vector<Tool>>(parse_tools(*vector.find("tools")))};
    const std::vector<int32_t> ids = published()->encode(text_of(vector, "text"));
    const AnswerEnd end = ids.back() == 1 ? AnswerEnd::kStop : AnswerEnd::kLength;
    for (const size_t per_step : {1u, 2u, 3u, 7u, 1000u}) {
      AnswerReader reader(*published(), options);
      ParsedAnswer answer;
      for (size_t from = 0; from < ids.size(); from += per_step) {
        std::vector<Delta> deltas;
        for (size_t i = from; i < std::min(from + per_step, ids.size()); ++i) reader.push(ids[i], deltas);
        answer.add(deltas);
      }
      std::vector<Delta> deltas;
      reader.finish(end, deltas);
      answer.add(deltas);
      const Json& serving = *vector.find("serving");
      EXPECT_EQ(answer.reasoning, text_of(serving, "reasoning")) << text_of(vector, "name");
      EXPECT_EQ(answer.content, text_of(serving, "content")) << text_of(vector, "name");
      EXPECT_EQ(chat_finish_reason(reader.parser(), end), text_of(serving, "finish_reason")) << text_of(vector, "name");
    }
  }
}

}  // namespace
}  // namespace folio
