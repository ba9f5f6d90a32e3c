#include "tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tokenizer/tokenizer_test_util.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

// The tokens of the bytes of `text`, one each.
std::vector<int32_t> byte_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(3 + static_cast<unsigned char>(c));
  return ids;
}

std::string push_all(Detokenizer& detokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += detokenizer.push(id);
  return text;
}

TEST(Detokenizer, NeverSplitsACharacter) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  Detokenizer detokenizer(tokenizer);
  std::string shown;
  const std::string text = "a\u00E9\u4E2D\U0001F600z";
  for (const int32_t id : byte_ids(text)) {
    const std::string part = detokenizer.push(id);
    EXPECT_EQ(find_invalid_utf8(part), part.size());
    shown += part;
  }
  EXPECT_EQ(shown, text);
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, FlushGivesAReplacementForAnUnfinishedCharacter) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  Detokenizer detokenizer(tokenizer);
  for (const int32_t id : byte_ids("\xF0\x9F\x98")) EXPECT_EQ(detokenizer.push(id), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.flush(), "");
  EXPECT_EQ(detokenizer.push(3 + 'a'), "a");
}

TEST(Detokenizer, HiddenTokensGiveNoText) {
  const nlohmann::json file = small_tokenizer({}, {"<think>"});
  const Tokenizer tokenizer = make_tokenizer(file);
  const int32_t think = *tokenizer.find_added("<think>");
  Detokenizer hiding(tokenizer);
  EXPECT_EQ(push_all(hiding, {0, think, 2, 1}), "<think>");
  Detokenizer showing(tokenizer, false);
  EXPECT_EQ(showing.push(1), "<\uFF5Cend\u2581of\u2581sentence\uFF5C>");
  // A hidden token does not end the character around it; an added one does.
  EXPECT_EQ(push_all(hiding, {3 + 0xC3, 1, 3 + 0xA9}), "\u00E9");
  EXPECT_EQ(push_all(hiding, {3 + 0xC3, think}), "\uFFFD<think>");
}

TEST(Detokenizer, UnknownIdsAreRefused) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  Detokenizer detokenizer(tokenizer);
  EXPECT_NE(error_message(ErrorCode::kInvalidArgument, [&] { detokenizer.push(259); }), "");
  EXPECT_NE(error_message(ErrorCode::kInvalidArgument, [&] { detokenizer.push(-1); }), "");
}

TEST(Detokenizer, StreamedTextEqualsDecodedText) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer({{"\xE4", "\xB8"}, {"\xAD", "a"}}, {"<\u4E2D>"}));
  for (uint64_t round = 0; round < 20000; ++round) {
    std::vector<int32_t> ids;
    const uint64_t count = random_bits(3, round, 0) % 16;
    for (uint64_t i = 1; i <= count; ++i) {
      const uint64_t bits = random_bits(3, round, i);
      // Mostly bytes that begin or continue a character.
      ids.push_back(bits % 3 == 0 ? static_cast<int32_t>((bits >> 8) % static_cast<uint64_t>(tokenizer.vocab_size()))
                                  : 3 + 0x80 + static_cast<int32_t>((bits >> 8) % 0x80));
    }
    for (const bool skip_hidden : {false, true}) {
      Detokenizer detokenizer(tokenizer, skip_hidden);
      std::string shown;
      for (const int32_t id : ids) {
        const std::string part = detokenizer.push(id);
        ASSERT_EQ(find_invalid_utf8(part), part.size());
        shown += part;
      }
      shown += detokenizer.flush();
      ASSERT_EQ(shown, tokenizer.decode(ids, skip_hidden));
    }
  }
}

}  // namespace
}  // namespace folio
