#include "tokenizer/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

TEST(StopStrings, CutsBeforeTheStop) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("one ENDtwo"), "one ");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.matched(), "END");
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.flush(), "");
}

TEST(StopStrings, HoldsBackWhatMayBeAStop) {
  StopStrings stops({"\n\nUser:"});
  EXPECT_EQ(stops.push("text\n"), "text");
  EXPECT_EQ(stops.push("\nUs"), "");
  EXPECT_EQ(stops.push("e it"), "\n\nUse it");
  EXPECT_EQ(stops.push("\n\n\nUser"), "\n");
  EXPECT_EQ(stops.flush(), "\n\nUser");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStrings, TheFirstToCompleteWinsAndTheLongestOfThose) {
  StopStrings first({"bcde", "cd"});
  EXPECT_EQ(first.push("abcdef"), "ab");
  EXPECT_EQ(first.matched(), "cd");
  StopStrings longest({"cd", "bcd"});
  EXPECT_EQ(longest.push("abcdef"), "a");
  EXPECT_EQ(longest.matched(), "bcd");
}

TEST(StopStrings, NoneAndEmpty) {
  StopStrings none({});
  EXPECT_EQ(none.push("text"), "text");
  EXPECT_EQ(none.push(""), "");
  EXPECT_FALSE(none.stopped());
  EXPECT_NE(error_message(ErrorCode::kInvalidArgument, [] { StopStrings({"a", ""}); }), "");
}

TEST(StopStrings, TheResultDoesNotDependOnHowTheTextIsCut) {
  for (uint64_t round = 0; round < 20000; ++round) {
    uint64_t draws = 0;
    const auto draw = [&](uint64_t limit) { return random_bits(4, round, draws++) % limit; };
    const auto random_text = [&](uint64_t size) {
      std::string text;
      while (text.size() < size) text.push_back("ab"[draw(2)]);
      return text;
    };
    std::vector<std::string> texts(draw(4));
    for (std::string& text : texts) text = random_text(1 + draw(6));
    const std::string text = random_text(draw(30));

    size_t end = std::string::npos;
    size_t begin = text.size();
    for (const std::string& stop : texts) {
      const size_t at = text.find(stop);
      if (at == std::string::npos) continue;
      if (at + stop.size() < end || (at + stop.size() == end && at < begin)) begin = at;
      end = std::min(end, at + stop.size());
    }
    StopStrings stops(texts);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + draw(5);
      shown += stops.push(std::string_view(text).substr(at, size));
      ASSERT_EQ(shown, text.substr(0, shown.size()));
      at += size;
    }
    EXPECT_EQ(stops.stopped(), end != std::string::npos);
    ASSERT_EQ(shown + stops.flush(), text.substr(0, begin));
  }
}

}  // namespace
}  // namespace folio
