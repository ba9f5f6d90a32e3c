#include "protocol/grammar_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "protocol/grammar_number.h"
#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

using testing::HasSubstr;

// All texts over `letters` of up to `length` characters.
std::vector<std::string> texts_over(const std::string& letters, size_t length) {
  std::vector<std::string> texts = {""};
  for (size_t begin = 0, size = 0; size < length; ++size) {
    const size_t end = texts.size();
    for (; begin < end; ++begin) {
      for (const char c : letters) texts.push_back(texts[begin] + c);
    }
  }
  return texts;
}

TEST(GrammarRegex, TakesWhatStdRegexMatches) {
  const std::vector<std::string> texts = texts_over("ab1-\n", 5);
  for (const char* pattern :
       {"",          "a",    "a|b",           "ab|ba|",  "a*",        "a+b?",   "(a|b)*1",      "(ab)+",
        "(?:ab){2}", "a{2}", "a{1,3}b",       "a{2,}",   "[ab]1",     "[^ab]",  "[a-b-]",       "[\\d-]+",
        "\\w+\\s",   "\\D",  "\\W\\S",        ".",       ".*1",       "(a*)*b", "(a|ab)(1|b1)", "(a|b){0,2}1",
        "a??b",      "a*?b", "((a)(b|(1)))*", "(a?){3}", "(|a)b",     "[-a]",   "[\\]a]",       "\\x61",
        "\\u0061",   "[^]",  "(?:a|b|1)+-?",  "a{0}b",   "(a+|b+)+1", "\\-",    "[\\n1]"}) {
    const CharAutomaton automaton = compile_regex(pattern, RegexMatch::kWhole);
    const std::regex oracle(pattern);
    for (const std::string& text : texts) {
      ASSERT_EQ(automaton.accepts(text), std::regex_match(text, oracle))
          << pattern << " on " << testing::PrintToString(text);
    }
  }
}

TEST(GrammarRegex, PatternsOfSchemasMatchAnywhere) {
  const std::vector<std::string> texts = texts_over("ab1", 6);
  for (const char* pattern : {"", "a", "^a", "a$", "^a$", "ab|b1", "^a|b$", "^(a|b1)", "(^a|1)b", "^ab*1$", "a{3}",
                              "^$", "b(a|1$)", "(a|b)$", "^(?:(?:a)|(?:b1))$", "^^a$$"}) {
    const CharAutomaton automaton = compile_regex(pattern, RegexMatch::kAnywhere);
    const std::regex oracle(pattern);
    for (const std::string& text : texts) {
      ASSERT_EQ(automaton.accepts(text), std::regex_search(text, oracle)) << pattern << " on " << text;
    }
  }
}

TEST(GrammarRegex, TakesCharactersNotBytes) {
  EXPECT_TRUE(compile_regex(".", RegexMatch::kWhole).accepts("\u4e16"));
  EXPECT_TRUE(compile_regex("[\u00e0-\u00ff]{2}", RegexMatch::kWhole).accepts("\u00e9\u00e8"));
  EXPECT_FALSE(compile_regex("[^\u00e9]", RegexMatch::kWhole).accepts("\u00e9"));
  EXPECT_TRUE(compile_regex("\\ud83d\\ude00", RegexMatch::kWhole).accepts("\U0001F600"));
  EXPECT_TRUE(compile_regex("\\u{1F600}", RegexMatch::kWhole).accepts("\U0001F600"));
}

TEST(GrammarRegex, SaysWhatIsWrong) {
  const auto message = [](const std::string& pattern) {
    return error_message(ErrorCode::kInvalidArgument, [&] { compile_regex(pattern, RegexMatch::kAnywhere); });
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"(a", "not closed"},
      {"a)", "no '(' to this ')'"},
      {"[a", "not closed"},
      {"*a", "nothing to repeat"},
      {"a**", "nothing to repeat"},
      {"a{3,2}", "wrong way round"},
      {"a++", "possessive"},
      {"(?=a)", "lookaround"},
      {"(?<!a)b", "lookaround"},
      {"(?i)a", "kind of group"},
      {"(a)\\1", "references"},
      {"(?<x>a)\\k<x>", "references"},
      {"\\bword\\b", "word borders"},
      {"\\p{L}", "Unicode properties"},
      {"a^b", "^ and $"},
      {"\\", "too early"},
      {"\\x6", "too early"},
      {"\\uZZZZ", "hexadecimal"},
      {"[b-a]", "no order"},
      {"[\\d-z]", "no order"},
      {"\\y", "not known"},
      {"a{1000000}", "not supported"},
      {"^*", "anchor"},
      {"\xff", "UTF-8"},
      {"((((a{99}){99}){99}){99}){99}", "too large"},
      {std::string(200, '(') + std::string(200, ')'), "inside each other"},
      {std::string(20'000, 'a'), "longer than"},
  };
  for (const auto& [pattern, part] : cases) EXPECT_THAT(message(pattern), HasSubstr(part)) << pattern.substr(0, 40);
}

TEST(CharSets, AreSets) {
  const CharSet a({{5, 9}, {1, 3}, {4, 4}}), b({{3, 6}, {20, 30}});
  EXPECT_EQ(a, CharSet({{1, 9}}));
  EXPECT_EQ(a & b, CharSet({{3, 6}}));
  EXPECT_EQ(a | b, CharSet({{1, 9}, {20, 30}}));
  EXPECT_EQ(a.complement(), CharSet({{0, 0}, {10, kLastCodePoint}}));
  EXPECT_EQ(CharSet::all().complement(), CharSet());
}

TEST(CharAutomata, CombineAsLanguages) {
  const std::vector<std::string> texts = texts_over("abc", 5);
  const std::vector<std::string> names = {"a", "ab", "cab"};
  const CharAutomaton one = CharAutomaton::one_of(names), none = CharAutomaton::none_of(names);
  const CharAutomaton lengths = CharAutomaton::length(2, 3), long_ones = CharAutomaton::length(4, -1);
  const CharAutomaton pattern = compile_regex("a*b?c*", RegexMatch::kWhole);
  const CharAutomaton without = CharAutomaton::without(U"aba");
  const CharAutomaton both = intersection(lengths, pattern), some = either(one, long_ones);
  for (const std::string& text : texts) {
    const bool named = std::ranges::find(names, text) != names.end();
    EXPECT_EQ(one.accepts(text), named) << text;
    EXPECT_EQ(none.accepts(text), !named) << text;
    EXPECT_EQ(lengths.accepts(text), text.size() == 2 || text.size() == 3) << text;
    EXPECT_EQ(without.accepts(text), text.find("aba") == std::string::npos) << text;
    EXPECT_EQ(both.accepts(text), lengths.accepts(text) && pattern.accepts(text)) << text;
    EXPECT_EQ(some.accepts(text), named || text.size() >= 4) << text;
    EXPECT_EQ(prefixed("ab", one).accepts("ab" + text), named) << text;
  }
  EXPECT_TRUE(CharAutomaton().empty());
  EXPECT_TRUE(intersection(one, long_ones).empty());
  EXPECT_FALSE(none.empty());
}

// Every way to write a small number, against arithmetic in thousandths.
TEST(GrammarNumbers, ObeyBoundsExactly) {
  std::vector<std::pair<std::string, int64_t>> numbers;  // text, thousandths
  for (const std::string& text : texts_over("0159.", 5)) {
    if (!std::regex_match(text, std::regex("(0|[1-9]\\d*)(\\.\\d{1,3})?"))) continue;
    numbers.emplace_back(text, std::llround(std::stod(text) * 1000));
    numbers.emplace_back("-" + text, -numbers.back().second);
  }
  ASSERT_GT(numbers.size(), 1000u);
  struct Case {
    const char *low, *high;
    bool low_open, high_open;
    const char* multiple;
  };
  const std::vector<Case> cases = {{"0", nullptr, false, false, nullptr},    {"0", nullptr, true, false, nullptr},
                                   {nullptr, "0", false, false, nullptr},    {nullptr, "0", false, true, nullptr},
                                   {"1", "10", false, false, nullptr},       {"1", "10", true, true, nullptr},
                                   {"-5", "25", false, false, nullptr},      {"-12.5", "-0.5", true, false, nullptr},
                                   {"0.125", "0.5", false, true, nullptr},   {"95", "1000", false, false, nullptr},
                                   {"-1000", "1e3", true, true, nullptr},    {"1.25e1", "12.5", false, false, nullptr},
                                   {nullptr, nullptr, false, false, "0.05"}, {"0", "100", false, false, "0.5"},
                                   {nullptr, nullptr, false, false, "3"},    {"-9", "9.9", false, false, "1.1"},
                                   {"99.9", "101", false, false, nullptr}};
  for (const bool integer : {false, true}) {
    for (const Case& c : cases) {
      NumberRules rules{.integer = integer, .exclusive_minimum = c.low_open, .exclusive_maximum = c.high_open};
      if (c.low != nullptr) rules.minimum = Decimal::parse(c.low);
      if (c.high != nullptr) rules.maximum = Decimal::parse(c.high);
      if (c.multiple != nullptr) rules.multiple_of = Decimal::parse(c.multiple);
      const CharAutomaton automaton = number_text(rules);
      const auto thousandths = [](const char* text) { return std::llround(std::stod(text) * 1000); };
      for (const auto& [text, value] : numbers) {
        bool expected = !integer || text.find('.') == std::string::npos;
        if (c.low != nullptr) expected &= c.low_open ? value > thousandths(c.low) : value >= thousandths(c.low);
        if (c.high != nullptr) expected &= c.high_open ? value < thousandths(c.high) : value <= thousandths(c.high);
        if (c.multiple != nullptr) expected &= value % thousandths(c.multiple) == 0;
        ASSERT_EQ(automaton.accepts(text), expected)
            << text << " integer " << integer << " from " << (c.low ? c.low : "-") << " to " << (c.high ? c.high : "-")
            << " multiple of " << (c.multiple ? c.multiple : "-");
      }
    }
  }
}

TEST(GrammarNumbers, AreJson) {
  const CharAutomaton any = number_text(NumberRules{});
  for (const char* text : {"0", "-0", "12", "-1.5", "1e5", "1E+05", "2.50e-7", "18446744073709551615"}) {
    EXPECT_TRUE(any.accepts(text)) << text;
  }
  for (const char* text : {"", "-", "01", "1.", ".5", "+1", "1e", "1e400", "0x1", "NaN"}) {
    EXPECT_FALSE(any.accepts(text)) << text;
  }
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [] { Decimal::parse("1e300"); }), HasSubstr("40 digits"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [] { number_text({.multiple_of = Decimal::parse("0.0000001234567")}); }),
              HasSubstr("multipleOf"));
}

}  // namespace
}  // namespace folio
