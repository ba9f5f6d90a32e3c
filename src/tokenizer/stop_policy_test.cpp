#include "tokenizer/stop_policy.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

std::vector<int32_t> byte_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(3 + static_cast<unsigned char>(c));
  return ids;
}

// Tokens that the policy takes until it stops; all of them if it does not.
size_t stops_after(StopStringPolicy& policy, const std::vector<int32_t>& ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (policy.accept(ids[i]) == PolicyVerdict::kStop) return i + 1;
  }
  return ids.size() + 1;
}

TEST(AnswerText, EndsBeforeTheStopString) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  AnswerText text(tokenizer, {"END"});
  std::string shown;
  for (const int32_t id : byte_ids("an ENEND and more")) shown += text.push(id);
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(shown + text.finish(), "an EN");
}

TEST(AnswerText, FinishGivesWhatWasHeldBack) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  AnswerText text(tokenizer, {"END"});
  std::string shown;
  for (const int32_t id : byte_ids("the EN")) shown += text.push(id);
  EXPECT_EQ(shown, "the ");
  EXPECT_EQ(text.finish(), "EN");
  AnswerText cut(tokenizer, {"END"});
  for (const int32_t id : byte_ids("E\xE2\x82")) cut.push(id);
  EXPECT_EQ(cut.finish(), "E\uFFFD");
}

TEST(StopStringPolicy, StopsWithTheCompletingToken) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  StopStringPolicy policy(tokenizer, {"never", "wor"});
  EXPECT_EQ(stops_after(policy, byte_ids("hello world")), std::string("hello wor").size());
  std::vector<uint64_t> bits(10, ~uint64_t{0});
  EXPECT_FALSE(policy.mask(bits));
}

TEST(StopStringPolicy, RollbackForgets) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  StopStringPolicy policy(tokenizer, {"stop"});
  EXPECT_EQ(stops_after(policy, byte_ids("a sto")), 6u);
  policy.rollback(1);
  EXPECT_EQ(stops_after(policy, byte_ids("p")), 2u) << "st, p";
  policy.rollback(1);
  EXPECT_EQ(stops_after(policy, byte_ids("op and")), 2u);
  policy.rollback(1);
  EXPECT_EQ(stops_after(policy, byte_ids("pp")), 1u) << "a stop that is rolled back can come again";
  policy.rollback(6);
  EXPECT_EQ(stops_after(policy, byte_ids("stop")), 4u);
}

TEST(StopStringPolicy, OnePerChoice) {
  const Tokenizer tokenizer = make_tokenizer(small_tokenizer());
  EXPECT_TRUE(stop_policies(tokenizer, {}, 3).empty());
  const auto policies = stop_policies(tokenizer, {"x"}, 3);
  ASSERT_EQ(policies.size(), 3u);
  EXPECT_NE(policies[0], policies[1]);
  EXPECT_THROW(stop_policies(tokenizer, {""}, 1), Error);
}

}  // namespace
}  // namespace folio
