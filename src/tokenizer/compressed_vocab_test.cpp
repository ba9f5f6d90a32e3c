#include "tokenizer/compressed_vocab.h"

#include <gtest/gtest.h>

#include <string>

#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

// Compressed ids of added tokens with these texts, relative to the first of them.
std::vector<int32_t> relative_ids(const std::vector<std::string>& texts) {
  const CompressedVocabulary vocabulary = compressed_vocabulary(make_tokenizer(small_tokenizer({}, texts)));
  std::vector<int32_t> ids;
  for (size_t i = 0; i < texts.size(); ++i) ids.push_back(vocabulary.map[259 + i]);
  return ids;
}

void expect_merged(const std::vector<std::string>& texts) {
  for (const int32_t id : relative_ids(texts)) EXPECT_EQ(id, relative_ids(texts)[0]) << texts[0];
}

void expect_distinct(const std::vector<std::string>& texts) {
  const std::vector<int32_t> ids = relative_ids(texts);
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_NE(ids[i], ids[0]) << texts[0] << " and " << texts[i];
}

TEST(CompressedVocabulary, MergesSpellingsOfOneWord) {
  expect_merged({"word", " word", "Word", " WORD", "w\u00F6rd", "wo\u0308rd", "\uFF57\uFF4F\uFF52\uFF44", "word\n"});
  expect_merged({"\u00E9t\u00E9", "\u00C9T\u00C9", "ete"});
  expect_merged({"\uFB01ne", "fine"});                          // a ligature
  expect_merged({"\u03A3\u0391\u03A3", "\u03C3\u03B1\u03C3"});  // a final capital sigma is an ordinary one
  expect_merged({"\u0130x", "ix"});                             // I with dot above
  expect_merged({"a \t\r\n b", "a b", "a\nb"});
  expect_merged({"\u3000xy\u2003", "xy"});
  expect_distinct({"word", "words", "wor d", "w-ord"});
  expect_distinct({"\u03C3\u03B1\u03C3", "\u03C3\u03B1\u03C2"});  // a final small sigma is another letter
  expect_distinct({"\u00DF-", "ss-"});                            // no case folding
}

TEST(CompressedVocabulary, WhiteSpaceAndMarksAlone) {
  // One space stays a space; a run of spaces is one space, too; other white space is stripped to nothing, and a token
  // that normalises to nothing counts as itself.
  expect_merged({"  ", "\t\t", "\n \n", "\r\n"});
  expect_distinct({"  ", "\v\v", "\u0301\u0301", "\u0300\u0301"});
}

TEST(CompressedVocabulary, IdsAreInOrderOfFirstAppearance) {
  const CompressedVocabulary vocabulary = compressed_vocabulary(make_tokenizer(small_tokenizer()));
  ASSERT_EQ(vocabulary.map.size(), 259u);
  EXPECT_EQ(vocabulary.map[0], 0);
  EXPECT_EQ(vocabulary.map[1], 1);
  EXPECT_EQ(vocabulary.map[2], 2);
  EXPECT_EQ(vocabulary.map[3], 3);
  int32_t next = 0;
  for (const int32_t id : vocabulary.map) {
    ASSERT_LE(id, next);
    next = std::max(next, id + 1);
  }
  EXPECT_EQ(next, vocabulary.count);
  EXPECT_EQ(vocabulary.map[3 + 'a'], vocabulary.map[3 + 'A']);
  EXPECT_EQ(vocabulary.map[3 + ' '], vocabulary.map[3 + '\n']);
  EXPECT_NE(vocabulary.map[3 + ' '], vocabulary.map[3 + '\v']);
}

// A byte that is no text is keyed by its spelling, which may be the text of another token.
TEST(CompressedVocabulary, ASpellingMayCoincideWithAText) {
  const CompressedVocabulary vocabulary =
      compressed_vocabulary(make_tokenizer(small_tokenizer({}, {" \u00E6", " \u00C6"})));
  EXPECT_EQ(vocabulary.map[259], vocabulary.map[3 + 0xE6]);
  EXPECT_EQ(vocabulary.map[260], vocabulary.map[3 + 0xE6]);
  EXPECT_NE(vocabulary.map[3 + 0xC6], vocabulary.map[3 + 0xE6]);
}

}  // namespace
}  // namespace folio
