#include "tokenizer/token_ids.h"

#include <gtest/gtest.h>

#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

TEST(TokenIds, SeparatedByWhiteSpaceOrCommas) {
  const std::vector<int32_t> expected{1, 20, 300};
  for (const char* text : {"1 20 300", "1,20,300", " 1,\n20\t,  300,\n", "1\r\n20\r\n300\r\n"}) {
    EXPECT_EQ(parse_token_ids(text, "ids"), expected) << text;
  }
  EXPECT_TRUE(parse_token_ids("", "ids").empty());
  EXPECT_TRUE(parse_token_ids(" \n,", "ids").empty());
  EXPECT_EQ(parse_token_ids("2147483647", "ids"), std::vector<int32_t>{2147483647});
}

TEST(TokenIds, AnythingElseIsRefusedByName) {
  for (const char* item : {"x", "-1", "+1", "1.5", "2147483648", "99999999999999999999", "0x10", "1;2"}) {
    const std::string text = std::string("7, ") + item;
    const std::string message = error_message(ErrorCode::kInvalidArgument, [&] { parse_token_ids(text, "f.txt"); });
    EXPECT_EQ(message.rfind("f.txt: item 2, \"" + std::string(item) + "\"", 0), 0u) << message;
  }
}

}  // namespace
}  // namespace folio
