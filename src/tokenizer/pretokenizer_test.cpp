#include "tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces(PreTokenizer kind, std::string_view text) {
  std::vector<std::string> out;
  PieceScanner scanner(kind, text);
  for (std::string_view piece; scanner.next(piece);) out.emplace_back(piece);
  return out;
}

std::vector<std::string> deepseek(std::string_view text) { return pieces(PreTokenizer::kDeepSeek, text); }
std::vector<std::string> byte_level(std::string_view text) { return pieces(PreTokenizer::kByteLevel, text); }

TEST(PreTokenizer, Vectors) {
  const nlohmann::json added = read_json(FOLIO_SOURCE_DIR "/tests/vectors/tokenizer/v41_added_tokens.json");
  size_t compared = 0;
  for (const auto& row : read_json(FOLIO_SOURCE_DIR "/tests/vectors/tokenizer/token_vectors.json")) {
    const auto text = row["text"].get<std::string>();
    // Rows with added tokens are cut at these first; the tokenizer's own test covers them.
    bool plain = true;
    for (const auto& token : added) plain = plain && text.find(token[1].get<std::string>()) == std::string::npos;
    if (!plain) continue;
    EXPECT_EQ(deepseek(text), row["pretok"].get<std::vector<std::string>>()) << row["text"];
    ++compared;
  }
  EXPECT_GE(compared, 120u);
}

TEST(PreTokenizer, StepsAreNested) {
  EXPECT_THAT(deepseek("x  1"), ElementsAre("x", "  ", "1"));
  EXPECT_THAT(deepseek("x  y"), ElementsAre("x", " ", " y"));
  EXPECT_THAT(deepseek("  中"), ElementsAre("  ", "中"));
  EXPECT_THAT(deepseek("12345"), ElementsAre("123", "45"));
  EXPECT_THAT(deepseek("a1b"), ElementsAre("a", "1", "b"));
  EXPECT_THAT(deepseek("\u0661\u0662\u0663\u0664"), ElementsAre("\u0661\u0662\u0663", "\u0664"));
  EXPECT_THAT(deepseek("カ・ナ"), ElementsAre("カ", "・", "ナ"));
  EXPECT_THAT(deepseek("한中국"), ElementsAre("한", "中", "국"));
}

TEST(PreTokenizer, WordsPunctuationAndSpace) {
  EXPECT_THAT(deepseek("don't"), ElementsAre("don", "'t"));
  EXPECT_THAT(deepseek("x=y"), ElementsAre("x", "=y"));
  EXPECT_THAT(deepseek("a\n\n\nb"), ElementsAre("a", "\n\n\n", "b"));
  EXPECT_THAT(deepseek("a  \n  b"), ElementsAre("a", "  \n", " ", " b"));
  EXPECT_THAT(deepseek("a \t\r\n \t"), ElementsAre("a", " \t\r\n", " \t"));
  EXPECT_THAT(deepseek("!?\r\n\n a"), ElementsAre("!?\r\n\n", " a"));
  EXPECT_THAT(deepseek("\n!"), ElementsAre("\n", "!"));
  EXPECT_THAT(deepseek(" !!"), ElementsAre(" !!"));
  EXPECT_THAT(deepseek("cafe\u0301s"), ElementsAre("cafe\u0301s"));
  EXPECT_THAT(deepseek("!\u0301"), ElementsAre("!", "\u0301"));
  EXPECT_THAT(deepseek("\u0301"), ElementsAre("\u0301"));
  EXPECT_THAT(deepseek("\u200B\u200Bab"), ElementsAre("\u200B", "\u200Bab"));
  EXPECT_THAT(deepseek("\u200B\u200B !"), ElementsAre("\u200B\u200B", " !"));
  EXPECT_THAT(deepseek("\u3000x"), ElementsAre("\u3000x"));
  EXPECT_THAT(deepseek("\u2003 "), ElementsAre("\u2003 "));
  EXPECT_THAT(deepseek(""), ElementsAre());
}

TEST(PreTokenizer, ByteLevel) {
  EXPECT_THAT(byte_level("I'm don't we'LL"), ElementsAre("I", "'m", " don", "'t", " we", "'", "LL"));
  EXPECT_THAT(byte_level("'re'ves"), ElementsAre("'re", "'ve", "s"));
  EXPECT_THAT(byte_level("a  b"), ElementsAre("a", " ", " b"));
  EXPECT_THAT(byte_level("a \n b"), ElementsAre("a", " \n", " b"));
  EXPECT_THAT(byte_level("a\n\n"), ElementsAre("a", "\n\n"));
  EXPECT_THAT(byte_level("a\nb"), ElementsAre("a", "\n", "b"));
  EXPECT_THAT(byte_level("abc123 456!? 7"), ElementsAre("abc", "123", " 456", "!?", " 7"));
  EXPECT_THAT(byte_level("cafe\u0301"), ElementsAre("cafe", "\u0301"));
  EXPECT_THAT(byte_level("x 's"), ElementsAre("x", " '", "s"));
  EXPECT_THAT(byte_level("x!'s"), ElementsAre("x", "!'", "s"));
  EXPECT_THAT(byte_level("\u4E2D\u6587"), ElementsAre("\u4E2D\u6587"));
  EXPECT_THAT(byte_level("\t \tx"), ElementsAre("\t ", "\t", "x"));
  EXPECT_THAT(byte_level(" "), ElementsAre(" "));
  EXPECT_THAT(byte_level(""), ElementsAre());
}

TEST(PreTokenizer, PiecesAreTheText) {
  const std::vector<std::string> parts{"a",  "Z",  "1",      " ",      "  ",     "\n",     "\r", "!",          "'",
                                       "中", "カ", "\u0301", "\u200B", "\u3000", "\u00BD", "'s", "\U0001F600", "_x"};
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string text;
    const uint64_t count = random_bits(2, round, 0) % 12;
    for (uint64_t i = 1; i <= count; ++i) text += parts[random_bits(2, round, i) % parts.size()];
    for (const PreTokenizer kind : {PreTokenizer::kDeepSeek, PreTokenizer::kByteLevel}) {
      std::string joined;
      for (const std::string& piece : pieces(kind, text)) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

// A megabyte of anything takes milliseconds; quadratic time would be hours.
TEST(PreTokenizer, LinearOnAdversarialText) {
  for (const char* unit :
       {"a", " ", "1", "!", "\n", " \n", "中", "\u0301", "\u200B", "\u200Ba", "! ", "'", "'s", "\u3000"}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    for (const PreTokenizer kind : {PreTokenizer::kDeepSeek, PreTokenizer::kByteLevel}) {
      const double start = now_seconds();
      pieces(kind, text);
      EXPECT_LT(now_seconds() - start, 10) << unit;
    }
  }
}

}  // namespace
}  // namespace folio
