#include "protocol/stream_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/test_util.h"

namespace folio {
namespace {

constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";

struct Vector {
  ParserOptions options;
  std::string text;
  AnswerEnd end = AnswerEnd::kLength;
};

Vector read_vector(const Json& json) {
  Vector vector;
  vector.options.start = text_of(json, "starts_in") == "reasoning" ? AnswerStart::kReasoning : AnswerStart::kContent;
  vector.options.calls = true;
  vector.options.tools = std::make_shared<const std::vector<Tool>>(parse_tools(*json.find("tools")));
  vector.text = text_of(json, "text");
  if (vector.text.ends_with(kEndOfSentence)) {
    vector.text.resize(vector.text.size() - kEndOfSentence.size());
    vector.end = AnswerEnd::kStop;
  }
  return vector;
}

// The answer in the form of a vector's "serving".
void expect_serving(const ParsedAnswer& answer, const std::string& reason, const Json& serving) {
  EXPECT_EQ(answer.reasoning, text_of(serving, "reasoning"));
  EXPECT_EQ(answer.content, text_of(serving, "content"));
  EXPECT_EQ(reason, text_of(serving, "finish_reason"));
  const Json::Array& calls = *serving.find("tool_calls")->array();
  ASSERT_EQ(answer.calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(answer.calls[i].name, text_of(calls[i], "name"));
    if (const Json* text = calls[i].find("arguments_text")) {
      EXPECT_EQ(answer.calls[i].arguments, *text->string());
    } else {
      EXPECT_TRUE(answer.calls[i].complete);
      EXPECT_EQ(Json::parse(answer.calls[i].arguments), *calls[i].find("arguments"));
    }
  }
}

class ParseVectors : public testing::Test {
 protected:
  // Calls `check` with each vector, its text and what it should give.
  template <typename Check>
  void for_each(const Check& check) {
    const auto text = read_text(kVectors + "dsml/completion_parse_vectors.json");
    ASSERT_TRUE(text);
    const Json vectors = Json::parse(*text);
    ASSERT_EQ(vectors.array()->size(), 42u);
    for (const Json& json : *vectors.array()) {
      SCOPED_TRACE(text_of(json, "name"));
      check(read_vector(json), *json.find("serving"));
      if (HasFailure()) return;
    }
  }

  static void expect(const Vector& vector, const std::vector<size_t>& cuts, const Json& serving) {
    std::string reason;
    const ParsedAnswer answer = parse_answer(vector.options, vector.text, cuts, vector.end, &reason);
    expect_serving(answer, reason, serving);
  }
};

TEST_F(ParseVectors, Whole) {
  for_each([](const Vector& vector, const Json& serving) { expect(vector, {}, serving); });
}

TEST_F(ParseVectors, CharacterByCharacter) {
  for_each([](const Vector& v, const Json& serving) { expect(v, character_cuts(v.text), serving); });
}

TEST_F(ParseVectors, EveryTwoWaySplit) {
  for_each([](const Vector& vector, const Json& serving) {
    for (const size_t cut : character_cuts(vector.text)) expect(vector, {cut}, serving);
  });
}

TEST_F(ParseVectors, RandomPieces) {
  Draws draws(1);
  for_each([&](const Vector& vector, const Json& serving) {
    const std::vector<size_t> characters = character_cuts(vector.text);
    for (int i = 0; i < 200; ++i) {
      std::vector<size_t> cuts;
      const size_t most = 1 + draws.below(12);
      for (const size_t cut : characters) {
        if (draws.below(most) == 0) cuts.push_back(cut);
      }
      expect(vector, cuts, serving);
    }
  });
}

}  // namespace
}  // namespace folio
