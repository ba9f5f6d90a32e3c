#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/rng.h"
#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t id_of(char c) { return 3 + static_cast<unsigned char>(c); }

TEST(Tokenizer, BytesSpellingsAndSizes) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer({{" ", "t"}, {" t", "he"}, {"h", "e"}}, {"<think>"}));
  // " t" = 259, " the" = 260, "he" = 261
  EXPECT_EQ(tokenizer.vocab_size(), 263);
  EXPECT_EQ(tokenizer.bytes(260), " the");
  EXPECT_EQ(tokenizer.spelling(260), "\u0120the");
  EXPECT_EQ(tokenizer.bytes(id_of('\xFF')), "\xFF");
  EXPECT_EQ(tokenizer.spelling(id_of('\x00')), "\u0100");
  EXPECT_EQ(tokenizer.bytes(262), "<think>");
  EXPECT_EQ(tokenizer.spelling(0), "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>");
  EXPECT_TRUE(tokenizer.is_added(262));
  EXPECT_FALSE(tokenizer.is_added(261));
  EXPECT_EQ(tokenizer.find_added("<think>"), 262);
  EXPECT_EQ(tokenizer.find_added("<thin"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_hidden(0) && tokenizer.is_hidden(1) && tokenizer.is_hidden(2));
  EXPECT_FALSE(tokenizer.is_hidden(262));
  EXPECT_THAT(tokenizer.encode(" the hen"), ElementsAre(260, id_of(' '), 261, id_of('n')));
  EXPECT_THAT(tokenizer.encode(""), ElementsAre());
}

TEST(Tokenizer, MergesAsPairs) {
  nlohmann::json file = small_tokenizer({{"a", "b"}, {"ab", " "}});
  file["model"]["merges"] = nlohmann::json::parse(R"([["a", "b"], ["ab", "\u0120"]])");
  const Tokenizer tokenizer = make_tokenizer(file);
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(259));
}

TEST(Tokenizer, AddedTokensAreLeftmostLongest) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer({}, {"<a", "<a>", "a><b>", "<a>x", ">>"}));
  const int32_t base = 259;
  EXPECT_THAT(tokenizer.encode("<a>"), ElementsAre(base + 1));
  EXPECT_THAT(tokenizer.encode("<a>xy"), ElementsAre(base + 3, id_of('y')));
  EXPECT_THAT(tokenizer.encode("<ab"), ElementsAre(base, id_of('b')));
  EXPECT_THAT(tokenizer.encode("<a><b>>"), ElementsAre(base + 1, id_of('<'), id_of('b'), base + 4));
  EXPECT_THAT(tokenizer.encode("a><b>"), ElementsAre(base + 2));
  EXPECT_THAT(tokenizer.encode("a>><b"), ElementsAre(id_of('a'), base + 4, id_of('<'), id_of('b')));
  EXPECT_THAT(tokenizer.encode("<a>", Special::kAsText), ElementsAre(id_of('<'), id_of('a'), id_of('>')));
}

TEST(Tokenizer, UntrustedTextMatchesNoAddedToken) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer({{"a", "b"}}, {"<t>", "<t"}));
  const int32_t t = 260;
  const auto encode = [&](std::string_view text, std::vector<ByteRange> untrusted) {
    return tokenizer.encode(text, untrusted);
  };
  EXPECT_THAT(encode("<t><t>", {}), ElementsAre(t, t));
  EXPECT_THAT(encode("<t><t>", {{3, 6}}), ElementsAre(t, id_of('<'), id_of('t'), id_of('>')));
  EXPECT_THAT(encode("<t><t>", {{0, 3}}), ElementsAre(id_of('<'), id_of('t'), id_of('>'), t));
  // One byte of a match is enough to forbid it; a shorter one before that byte still counts.
  EXPECT_THAT(encode("<t>", {{2, 3}}), ElementsAre(t + 1, id_of('>')));
  EXPECT_THAT(encode("<t>", {{1, 2}}), ElementsAre(id_of('<'), id_of('t'), id_of('>')));
  EXPECT_THAT(encode("<t>", {{0, 1}}), ElementsAre(id_of('<'), id_of('t'), id_of('>')));
  // An empty range forbids nothing; text crosses the border of a range as if there were none.
  EXPECT_THAT(encode("<t>", {{1, 1}}), ElementsAre(t));
  EXPECT_THAT(encode("ab", {{1, 2}}), ElementsAre(259));
  EXPECT_THAT(encode("ab<t>", {{0, 0}, {1, 2}, {2, 2}}), ElementsAre(259, t));
  EXPECT_THAT(encode("<t><t><t><t>", {{0, 3}, {6, 9}}),
              ElementsAre(id_of('<'), id_of('t'), id_of('>'), t, id_of('<'), id_of('t'), id_of('>'), t));
}

// With random ranges: an added token comes out only where its text stands outside all of them, and the ids of a text
// without added spellings do not depend on the ranges.
TEST(Tokenizer, UntrustedRangesInGeneral) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer({{"a", "b"}, {"ab", "<"}}, {"<a>", "b<", "<ab>c"}));
  for (uint64_t round = 0; round < 20000; ++round) {
    uint64_t draws = 0;
    const auto draw = [&](uint64_t limit) { return random_bits(5, round, draws++) % limit; };
    std::string text;
    while (text.size() < 24) text += "<ab>c"[draw(5)];
    std::vector<ByteRange> untrusted;
    for (size_t at = draw(8); at < text.size(); at += draw(8)) {
      const size_t end = std::min<size_t>(text.size(), at + draw(4));
      untrusted.push_back({at, end});
      at = end;
    }
    const std::vector<int32_t> ids = tokenizer.encode(text, untrusted);
    ASSERT_EQ(tokenizer.decode(ids), text);
    size_t at = 0;
    for (const int32_t id : ids) {
      const size_t end = at + tokenizer.bytes(id).size();
      for (const ByteRange& range : untrusted) {
        ASSERT_FALSE(tokenizer.is_added(id) && std::max(at, range.begin) < std::min(end, range.end)) << text;
      }
      at = end;
    }
    std::string harmless = text;
    std::replace(harmless.begin(), harmless.end(), '<', '(');
    ASSERT_EQ(tokenizer.encode(harmless, untrusted), tokenizer.encode(harmless, Special::kAsText));
  }
}

TEST(Tokenizer, BadInputIsRefused) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { tokenizer.encode("ab\xFFz"); }), HasSubstr("offset 2"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { tokenizer.encode("\xED\xA0\x80"); }),
              HasSubstr("offset 0"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { tokenizer.decode(std::vector<int32_t>{3, 259}); }),
              HasSubstr("token id 259 is not in the vocabulary: ids are 0 to 258"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { tokenizer.check_ids(std::vector<int32_t>{-1}); }),
              HasSubstr("token id -1"));
}

TEST(Tokenizer, LoadsAFileOrItsDirectory) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "folio_tokenizer_test";
  std::filesystem::create_directories(directory);
  const std::string file = directory / "tokenizer.json";
  std::ofstream(file) << small_tokenizer().dump();
  EXPECT_EQ(Tokenizer::load(file).vocab_size(), 259);
  EXPECT_EQ(Tokenizer::load(directory).vocab_size(), 259);
  std::filesystem::remove_all(directory);
  EXPECT_THAT(error_message(ErrorCode::kNotFound, [&] { Tokenizer::load(file); }), HasSubstr(file));
}

// Views into the tokenizer's own memory must survive a move.
TEST(Tokenizer, Moves) {
  Tokenizer first = make_tokenizer(small_tokenizer({{"a", "b"}}));
  const Tokenizer second = std::move(first);
  EXPECT_THAT(second.encode("ab c"), ElementsAre(259, id_of(' '), id_of('c')));
}

TEST(Tokenizer, DecodingReplacesWhatIsNotUtf8) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{id_of('\xE4'), id_of('\xB8'), id_of('\xAD')}), "\u4E2D");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{id_of('a'), id_of('\xE4'), id_of('\xB8')}), "a\uFFFD");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0, id_of('a'), 1}, true), "a");
}

}  // namespace
}  // namespace folio
