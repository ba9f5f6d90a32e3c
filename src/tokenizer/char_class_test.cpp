#include "tokenizer/char_class.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace folio {
namespace {

TEST(CharClass, Samples) {
  const CharClassTable& table = CharClassTable::instance();
  EXPECT_EQ(table[U'a'], kLetter);
  EXPECT_EQ(table[U'中'], kLetter);
  EXPECT_EQ(table[U'\u0301'], kMark);
  EXPECT_EQ(table[U'7'], kNumber);
  EXPECT_EQ(table[U'\u2167'], kNumber);
  EXPECT_EQ(table[U'_'], kPunctuation);
  EXPECT_EQ(table[U'$'], kSymbol);
  EXPECT_EQ(table[U'\U0001F600'], kSymbol);
  EXPECT_EQ(table[U' '], kWhiteSpace);
  EXPECT_EQ(table[U'\0'], 0);
  EXPECT_EQ(table[U'\u200B'], 0);    // a format character
  EXPECT_EQ(table[0xE000], 0);       // private use
  EXPECT_EQ(table[0x10FFFF], 0);     // not a character
  EXPECT_EQ(table[0xE0100], kMark);  // the last run of the table
  EXPECT_EQ(table[0xE01F0], 0);
  EXPECT_EQ(table[0x1C89], kLetter);   // new in Unicode 16
  EXPECT_EQ(table[0x1FAE9], kSymbol);  // new in Unicode 16
}

// Numbers of code points, from UnicodeData.txt of version 16.0.0.
TEST(CharClass, Totals) {
  const CharClassTable& table = CharClassTable::instance();
  std::map<int, int> totals;
  std::set<char32_t> white_space;
  for (char32_t c = 0; c < 0x110000; ++c) {
    ++totals[table[c] & ~kWhiteSpace];
    if ((table[c] & kWhiteSpace) != 0) white_space.insert(c);
  }
  EXPECT_EQ(totals[kLetter], 141028);
  EXPECT_EQ(totals[kMark], 2501);
  EXPECT_EQ(totals[kNumber], 1911);
  EXPECT_EQ(totals[kPunctuation], 855);
  EXPECT_EQ(totals[kSymbol], 8514);
  EXPECT_EQ(totals.size(), 6u);  // the five and none
  std::set<char32_t> expected{0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  for (char32_t c = 0x09; c <= 0x0D; ++c) expected.insert(c);
  for (char32_t c = 0x2000; c <= 0x200A; ++c) expected.insert(c);
  EXPECT_EQ(white_space, expected);
}

}  // namespace
}  // namespace folio
