#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace folio {
namespace {

std::string replaced(std::string_view text) {
  std::string out;
  append_utf8(text, true, out);
  return out;
}

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    append_code_point(c, text);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(find_invalid_utf8(text), surrogate ? 0 : text.size()) << static_cast<uint32_t>(c);
    if (surrogate) continue;
    const auto [decoded, length] = decode_utf8(text.data());
    ASSERT_EQ(decoded, c);
    ASSERT_EQ(length, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const Utf8Sequence sequence = utf8_sequence(std::string_view(text).substr(0, cut), 0);
      ASSERT_EQ(sequence.kind, Utf8Kind::kIncomplete);
      ASSERT_EQ(sequence.length, cut);
    }
  }
}

TEST(Utf8, IllFormedPartsAreReplacedOneByOne) {
  EXPECT_EQ(replaced("\xC3\xA9"), "\u00E9");
  EXPECT_EQ(replaced("\x80"), "\uFFFD");
  EXPECT_EQ(replaced("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(replaced("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(replaced("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(replaced("\xE4\xB8\x41"),
            "\uFFFD"
            "A");  // a beginning, then something else
  EXPECT_EQ(replaced("\xF0\x9F\x98\xE4\xB8\xAD"), "\uFFFD\u4E2D");
  EXPECT_EQ(replaced("a\xF0\x9F\x98"), "a\uFFFD");
  EXPECT_EQ(replaced("\xFF\xFE"), "\uFFFD\uFFFD");
}

TEST(Utf8, AnIncompleteEndIsLeftOutUnlessFinal) {
  std::string out;
  EXPECT_EQ(append_utf8("ab\xF0\x9F\x98", false, out), 3u);
  EXPECT_EQ(out, "ab");
  EXPECT_EQ(append_utf8("\x80\xE4", false, out), 1u);
  EXPECT_EQ(out, "ab\uFFFD");
  EXPECT_EQ(append_utf8("\xE4", true, out), 0u);
  EXPECT_EQ(out, "ab\uFFFD\uFFFD");
}

TEST(Utf8, TheFirstInvalidByteIsFoundAtEveryPlace) {
  const std::string text = "The quick \u00E9\u4E2D\U0001F600 brown fox";
  for (size_t at = 0; at <= text.size(); ++at) {
    const std::string broken = text.substr(0, at) + "\xFF" + text.substr(at);
    const size_t invalid = find_invalid_utf8(broken);
    // Inside a character, that character is the first thing wrong.
    EXPECT_LE(invalid, at);
    EXPECT_LE(at - invalid, 3u);
  }
  EXPECT_EQ(find_invalid_utf8(text), text.size());
}

TEST(Utf8, ReplacingRandomBytesGivesWellFormedText) {
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string bytes;
    const uint64_t size = random_bits(1, round, 0) % 12;
    for (uint64_t i = 1; i <= size; ++i) bytes.push_back(static_cast<char>(random_bits(1, round, i)));
    const std::string text = replaced(bytes);
    ASSERT_EQ(find_invalid_utf8(text), text.size());
    ASSERT_EQ(text == bytes, find_invalid_utf8(bytes) == bytes.size());
  }
}

}  // namespace
}  // namespace folio
