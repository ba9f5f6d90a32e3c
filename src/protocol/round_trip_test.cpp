// Property: an assistant turn that is rendered and read again has its fields back, and renders to the same bytes.
#include <gtest/gtest.h>

#include "protocol/render.h"
#include "protocol/test_util.h"

namespace folio {
namespace {

const std::string kEnd = "<｜end▁of▁sentence｜>";

// Text that looks like markup where it may, and never is.
std::string random_text(Draws& draws, size_t pieces) {
  static const std::vector<std::string> kPieces = {"a",
                                                   " ",
                                                   "\n",
                                                   "\n\n",
                                                   "word ",
                                                   "<",
                                                   "</",
                                                   "<｜",
                                                   "｜",
                                                   "<|DSML|> ",
                                                   "DSML",
                                                   "\"",
                                                   "\\",
                                                   "\">",
                                                   "é",
                                                   "😀",
                                                   "\t",
                                                   "think>",
                                                   "</thin",
                                                   "calls>",
                                                   "<invoke>",
                                                   "</invoke>",
                                                   "{\"a\":",
                                                   "</parameter>",
                                                   "]",
                                                   "\u2028",
                                                   "\x01",
                                                   "string=\"",
                                                   "\" string=\"",
                                                   "007",
                                                   "null",
                                                   "<tool_result>",
                                                   "\x02",
                                                   "</｜DSML ｜",
                                                   "<parameter",
                                                   "<think",
                                                   "<invoke name=\"x\">"};
  std::string text;
  for (size_t i = draws.below(pieces + 1); i > 0; --i) text += draws.one_of(kPieces);
  for (const char* markup : {"<think>", "</think>", "｜DSML｜"}) {
    for (size_t at = text.find(markup); at != std::string::npos; at = text.find(markup)) {
      text.erase(text.find_first_of("tD", at), 1);
    }
  }
  return text;
}

Json random_value(Draws& draws, int depth) {
  switch (draws.below(depth > 2 ? 5 : 7)) {
    case 0:
      return {};
    case 1:
      return Json(draws.below(2) == 0);
    case 2:
      return Json(static_cast<int64_t>(draws.below(1u << 30)) - (1 << 29));
    case 3:
      return Json::parse(draws.one_of<std::string>({"1.5", "1e+16", "-0.0", "1e-05", "12345678901234567890123"}));
    case 4:
      return Json(random_text(draws, 4));
    case 5: {
      Json::Array array;
      for (size_t i = draws.below(4); i > 0; --i) array.push_back(random_value(draws, depth + 1));
      return Json(std::move(array));
    }
    default: {
      Json object{Json::Object()};
      for (size_t i = draws.below(4); i > 0; --i) {
        const std::string key = random_text(draws, 2);  // drawn before its value by every compiler
        object.set(key, random_value(draws, depth + 1));
      }
      return object;
    }
  }
}

// A key that a tag can carry: without what ends it.
std::string random_key(Draws& draws) {
  std::string key = random_text(draws, 3);
  for (const char* end : {"\" string=\"true\">", "\" string=\"false\">"}) {
    for (size_t at = key.find(end); at != std::string::npos; at = key.find(end)) key.erase(at, 1);
  }
  return key;
}

Message random_turn(Draws& draws) {
  Message turn = text_message(Role::kAssistant, random_text(draws, 12));
  turn.reasoning = random_text(draws, 12);
  static const std::vector<std::string> kNames = {"f", "get_weather", "math::add", "имя", "a-b.c/d"};
  for (size_t calls = draws.below(4); calls > 0; --calls) {
    Json arguments{Json::Object()};
    for (size_t i = draws.below(5); i > 0; --i) {
      const std::string key = random_key(draws);
      arguments.set(key, random_value(draws, 0));
    }
    turn.tool_calls.push_back({"", draws.one_of(kNames), std::move(arguments)});
  }
  return turn;
}

std::string rendered_turn(const Message& turn, bool thinks) {
  const Prompt prompt =
      render({text_message(Role::kUser, "q"), turn}, {.thinking = {.on = thinks}, .end = PromptEnd::kReference});
  const std::string header = thinks ? "<｜Assistant｜><think>" : "<｜Assistant｜></think>";
  const size_t begin = prompt.text.find(header) + header.size();
  EXPECT_TRUE(prompt.text.ends_with(kEnd));
  return prompt.text.substr(begin, prompt.text.size() - kEnd.size() - begin);
}

TEST(RoundTrip, RandomTurns) {
  constexpr uint64_t kCases = 10000;
  size_t calls = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Draws draws(seed);
    Message turn = random_turn(draws);
    const bool thinks = draws.below(2) == 0;
    if (!thinks) turn.reasoning.clear();
    const std::string text = rendered_turn(turn, thinks);

    std::vector<size_t> cuts;
    const size_t most = 1 + draws.below(20);
    for (const size_t cut : character_cuts(text)) {
      if (draws.below(most) == 0) cuts.push_back(cut);
    }
    const ParserOptions options{.start = thinks ? AnswerStart::kReasoning : AnswerStart::kContent, .calls = true};
    const ParsedAnswer answer = parse_answer(options, text, cuts, AnswerEnd::kStop);

    ASSERT_EQ(answer.reasoning, turn.reasoning) << text;
    ASSERT_EQ(answer.content, turn.content[0].text) << text;
    ASSERT_EQ(answer.calls.size(), turn.tool_calls.size()) << text;
    Message again = text_message(Role::kAssistant, answer.content);
    again.reasoning = answer.reasoning;
    for (size_t i = 0; i < answer.calls.size(); ++i, ++calls) {
      ASSERT_EQ(answer.calls[i].name, turn.tool_calls[i].name);
      ASSERT_TRUE(answer.calls[i].complete);
      ASSERT_EQ(Json::parse(answer.calls[i].arguments), turn.tool_calls[i].arguments) << text;
      again.tool_calls.push_back({"", answer.calls[i].name, normalised_arguments(Json(answer.calls[i].arguments))});
    }
    ASSERT_EQ(rendered_turn(again, thinks), text);
  }
  EXPECT_GT(calls, kCases);
}

}  // namespace
}  // namespace folio
