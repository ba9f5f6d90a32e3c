#include "engine/logit_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tensor/device.h"

namespace folio {

// For the messages of EXPECT_THAT.
bool operator==(const LogitDelta& a, const LogitDelta& b) { return a.id == b.id && a.delta == b.delta; }
void PrintTo(const LogitDelta& d, std::ostream* out) { *out << d.id << ":" << d.delta; }

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kVocab = 200;
constexpr int32_t kEos = 1;
constexpr float kBan = -std::numeric_limits<float>::infinity();

class Mask final : public TokenPolicy {
 public:
  explicit Mask(std::vector<int32_t> banned) : banned_(std::move(banned)) {}
  bool mask(std::span<uint64_t> bits) override {
    for (const int32_t id : banned_) bits[static_cast<size_t>(id / 64)] &= ~(uint64_t{1} << (id % 64));
    return !banned_.empty();
  }
  PolicyVerdict accept(int32_t) override { return PolicyVerdict::kContinue; }
  void rollback(int32_t) override {}

 private:
  std::vector<int32_t> banned_;
};

class LogitListsTest : public testing::Test {
 protected:
  // Adds the rules of `lists` to a new row of the step.
  LogitRules row(const LogitLists& lists, int64_t index, TokenPolicy* policy = nullptr) {
    builder_.add_request({}, {});
    builder_.add_row({.value = 5});
    builder_.add_sampled_row({});
    lists.add_to(builder_, index, kEos, policy);
    const SampleLists step = builder_.step().lists;
    return step.rules == nullptr ? LogitRules{} : step.rules[builder_.step().inputs.num_head_rows - 1];
  }
  std::vector<LogitDelta> deltas(const LogitRules& rules) const {
    const LogitDelta* first = builder_.step().lists.deltas + rules.first_delta;
    return {first, first + rules.num_biases + rules.num_penalties};
  }
  std::vector<int32_t> ids(int32_t bitset, bool set) const {
    const SampleLists lists = builder_.step().lists;
    std::vector<int32_t> found;
    for (int32_t id = 0; id < kVocab; ++id) {
      const uint64_t word = lists.bitsets[bitset * lists.bitset_words + id / 64];
      if ((word >> (id % 64) & 1) == (set ? 1 : 0)) found.push_back(id);
    }
    return found;
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
  StepBuilder builder_{*device_,
                       {.max_rows = 8, .max_head_rows = 8, .max_requests = 4, .max_pages = 1, .vocab = kVocab}};
};

TEST_F(LogitListsTest, APlainRequestHasNoRules) {
  Request request;
  request.prompt = {5, 6};
  LogitLists lists(request);
  lists.take(7);
  EXPECT_FALSE(lists.follow_tokens());
  EXPECT_EQ(lists.deltas(1), 0);
  row(lists, 1);
  EXPECT_EQ(builder_.step().lists.rules, nullptr);
}

TEST_F(LogitListsTest, BiasesAndBansComeBeforePenalties) {
  Request request;
  request.prompt = {5, 6};
  request.logit_bias = {{.id = 9, .delta = 3}, {.id = 150, .delta = -2}};
  request.stop_ids = {12, 100000};
  request.min_tokens = 2;
  request.frequency_penalty = 0.5f;
  request.presence_penalty = 1;
  LogitLists lists(request);
  EXPECT_TRUE(lists.follow_tokens());
  lists.take(40);
  lists.take(41);
  lists.take(40);
  LogitRules rules = row(lists, 1);
  EXPECT_EQ(rules.num_biases, 4);
  EXPECT_EQ(rules.num_penalties, 2);
  EXPECT_THAT(deltas(rules), ElementsAre(LogitDelta{9, 3}, LogitDelta{150, -2}, LogitDelta{kEos, kBan},
                                         LogitDelta{12, kBan}, LogitDelta{40, -2}, LogitDelta{41, -1.5f}));
  EXPECT_GE(lists.deltas(1), 6);
  rules = row(lists, 2);  // another row of the step, whose end may come
  EXPECT_THAT(deltas(rules),
              ElementsAre(LogitDelta{9, 3}, LogitDelta{150, -2}, LogitDelta{40, -2}, LogitDelta{41, -1.5f}));
  EXPECT_EQ(lists.deltas(2), 4);
}

TEST_F(LogitListsTest, RepetitionCountsPromptAndOutputPenaltiesTheOutputAlone) {
  Request request;
  request.prompt = {5, 130, 5};
  request.repetition_penalty = 1.2f;
  request.presence_penalty = 1;
  LogitLists lists(request);
  EXPECT_TRUE(lists.follow_tokens());
  LogitRules rules = row(lists, 0);
  EXPECT_EQ(rules.num_penalties, 0);
  EXPECT_EQ(rules.repetition_penalty, 1.2f);
  EXPECT_THAT(ids(rules.seen, true), ElementsAre(5, 130));
  lists.take(199);
  rules = row(lists, 1);
  EXPECT_THAT(ids(rules.seen, true), ElementsAre(5, 130, 199));
  EXPECT_THAT(deltas(rules), ElementsAre(LogitDelta{199, -1}));
}

TEST_F(LogitListsTest, PoliciesMask) {
  Request request;
  request.prompt = {5};
  const LogitLists lists(request);
  Mask none({}), some({0, 64, 199});
  EXPECT_EQ(row(lists, 0, &none).mask, -1);
  const LogitRules rules = row(lists, 0, &some);
  EXPECT_THAT(ids(rules.mask, false), ElementsAre(0, 64, 199));
}

TEST_F(LogitListsTest, StagingStaysWhereItIs) {
  Request request;
  request.prompt = {5};
  request.repetition_penalty = 2;
  request.logit_bias = {{.id = 9, .delta = 3}};
  const LogitLists lists(request);
  row(lists, 0);
  const SampleLists before = builder_.step().lists;
  builder_.clear();
  row(lists, 0);
  row(lists, 0);
  const SampleLists after = builder_.step().lists;
  EXPECT_EQ(before.rules, after.rules);
  EXPECT_EQ(before.deltas, after.deltas);
  EXPECT_EQ(before.bitsets, after.bitsets);
  builder_.clear();
  row(LogitLists(Request{}), 0);
  EXPECT_EQ(builder_.step().lists.rules, nullptr);
}

TEST(CheckSampling, NamesTheField) {
  const auto refused = [](const auto& change, const std::string& says) {
    Request request;
    change(request);
    try {
      check_sampling(request, kVocab);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {-0.1f, nan, infinity}) {
    refused([&](Request& r) { r.sampling.temperature = bad; }, "temperature");
  }
  for (const float bad : {0.0f, -1.0f, 1.1f, nan}) refused([&](Request& r) { r.sampling.top_p = bad; }, "top_p");
  for (const float bad : {-0.1f, 1.1f, nan}) refused([&](Request& r) { r.sampling.min_p = bad; }, "min_p");
  refused([](Request& r) { r.sampling.top_k = -2; }, "top_k -2");
  for (const float bad : {0.0f, -1.0f, nan, infinity}) {
    refused([&](Request& r) { r.repetition_penalty = bad; }, "repetition_penalty");
  }
  for (const float bad : {-2.1f, 2.1f, nan}) {
    refused([&](Request& r) { r.presence_penalty = bad; }, "presence_penalty");
    refused([&](Request& r) { r.frequency_penalty = bad; }, "frequency_penalty");
  }
  refused([](Request& r) { r.logit_bias = {{.id = 200, .delta = 1}}; }, "token id 200");
  refused([](Request& r) { r.logit_bias = {{.id = -1, .delta = 1}}; }, "token id -1");
  for (const float bad : {-101.0f, 100.5f, nan, infinity}) {
    refused([&](Request& r) { r.logit_bias = {{.id = 7, .delta = bad}}; }, "logit_bias of token id 7");
  }
  refused([](Request& r) { r.logit_bias.resize(kMaxLogitBias + 1); }, "1025 entries");
  refused([](Request& r) { r.stop_ids.resize(kMaxStopIds + 1); }, "1025 entries");
  refused([](Request& r) { r.logprobs = kMaxTopLogprobs + 1; }, "logprobs 21");
  refused([](Request& r) { r.logprobs = -1; }, "logprobs -1");
  refused([](Request& r) { r.min_tokens = -1; }, "min_tokens -1");
  refused([](Request& r) { r.min_tokens = r.max_tokens + 1; }, "min_tokens 129");

  Request edge;
  edge.sampling = {.temperature = 0, .top_k = -1, .top_p = 1e-6f, .min_p = 1};
  edge.repetition_penalty = 0.01f;
  edge.presence_penalty = -2;
  edge.frequency_penalty = 2;
  edge.logit_bias = {{.id = 199, .delta = -100}};
  edge.logprobs = kMaxTopLogprobs;
  edge.min_tokens = edge.max_tokens;
  check_sampling(edge, kVocab);
}

}  // namespace
}  // namespace folio
