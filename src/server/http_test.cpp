// Parts of the server that need neither a socket nor a model.
#include <gtest/gtest.h>

#include "server/api_error.h"
#include "server/api_keys.h"
#include "server/http_message.h"
#include "server/log_writer.h"
#include "server/metrics.h"
#include "server/response_store.h"
#include "server/token_policies.h"

namespace folio {
namespace {

TEST(HttpMessage, Targets) {
  HttpRequest request;
  ASSERT_TRUE(split_target("/v1/models/a%2Fb%20c?x=1&y=%zz", request));
  EXPECT_EQ(request.path, "/v1/models/a/b c");
  EXPECT_EQ(request.query, "x=1&y=%zz");
  ASSERT_TRUE(split_target("/", request));
  EXPECT_EQ(request.query, "");
  for (const char* bad : {"", "x", "http://a/", "/%", "/%4", "/%4g", "/%00", "/%0a", "*"}) {
    EXPECT_FALSE(split_target(bad, request)) << bad;
  }
}

TEST(HttpMessage, HeadersOfReplies) {
  HttpReply reply{.status = 404, .body = "abc", .headers = {{"X-A", "1"}, {"X-Evil", "a\r\nSet-Cookie: b"}}};
  const std::string head = reply_head(reply, BodyEnd::kLength, true);
  EXPECT_EQ(head,
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nX-A: 1\r\nContent-Length: 3\r\n"
            "Connection: close\r\n\r\n");
  EXPECT_NE(reply_head(reply, BodyEnd::kChunks, false).find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(reply_head(reply, BodyEnd::kClose, true).find("Length"), std::string::npos);
}

TEST(HttpMessage, HeadersByAnyCase) {
  HttpRequest request;
  request.headers = {{"Content-Type", "a"}, {"content-type", "b"}};
  EXPECT_EQ(request.header("CONTENT-TYPE"), "a");
  EXPECT_EQ(request.header("Content"), "");
}

TEST(ApiKeys, OneOfTheKeys) {
  const ApiKeys keys({"first", "second"});
  const auto allowed = [&](const std::string& name, const std::string& value) {
    HttpRequest request;
    request.headers = {{name, value}};
    return keys.allow(request);
  };
  EXPECT_TRUE(allowed("Authorization", "Bearer first"));
  EXPECT_TRUE(allowed("authorization", "bearer second"));
  EXPECT_TRUE(allowed("X-Api-Key", "second"));
  for (const char* wrong : {"Bearer ", "Bearer firs", "Bearer firstt", "first", "Basic first", ""}) {
    EXPECT_FALSE(allowed("Authorization", wrong)) << wrong;
  }
  EXPECT_TRUE(ApiKeys({}).allow({}));
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_FALSE(equal_in_constant_time("a", ""));
  EXPECT_FALSE(equal_in_constant_time("aa", "a"));
}

TEST(ApiErrors, StatusAndShape) {
  const HttpReply full = error_reply(ApiError(429, "full", "", 3), ApiStyle::kOpenAi);
  EXPECT_EQ(full.status, 429);
  ASSERT_EQ(full.headers.size(), 1U);
  EXPECT_EQ(full.headers[0].name + full.headers[0].value, "Retry-After3");
  EXPECT_EQ(full.body, R"({"error":{"message":"full","type":"RateLimitError","param":null,"code":429}})");
  const HttpReply busy = error_reply(ApiError(503, "busy"), ApiStyle::kAnthropic);
  EXPECT_EQ(busy.status, 529);
  EXPECT_EQ(busy.body, R"({"type":"error","error":{"type":"overloaded_error","message":"busy"}})");
}

TEST(Metrics, Histograms) {
  Histogram histogram({1, 2.5});
  histogram.observe(1);
  histogram.observe(2, 2);
  histogram.observe(9);
  std::string out;
  histogram.print("h", "a=\"b\"", out);
  EXPECT_EQ(out,
            "h_bucket{a=\"b\",le=\"1\"} 1\nh_bucket{a=\"b\",le=\"2.5\"} 3\nh_bucket{a=\"b\",le=\"+Inf\"} 4\n"
            "h_sum{a=\"b\"} 14\nh_count{a=\"b\"} 4\n");
}

TEST(ResponseStore, KeepsTheLast) {
  ResponseStore store(2, 1000);
  store.put("a", {.messages = {}, .body = "1"});
  store.put("b", {.messages = {}, .body = "2"});
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  store.put("c", {.messages = {}, .body = "3"});
  store.put("d", {.messages = {}, .body = "4"});
  EXPECT_EQ(store.find("b"), nullptr);
  ASSERT_NE(store.find("d"), nullptr);
  EXPECT_EQ(store.find("d")->body, "4");
  store.put("large", {.messages = {}, .body = std::string(2000, 'x')});
  EXPECT_EQ(store.find("large"), nullptr);
  EXPECT_NE(store.find("c"), nullptr);
}

TEST(ResponseStore, FindsTheItemsOfWhatItKeeps) {
  const auto response = [](const char* item, const char* text) {
    return StoredResponse{.messages = {},
                          .body = "",
                          .items = {Json::parse(concat(R"({"id": ")", item, R"(", "text": ")", text, "\"}"))}};
  };
  ResponseStore store(2, 1000);
  store.put("a", response("item-a", "1"));
  store.put("b", response("item-b", "2"));
  ASSERT_TRUE(store.find_item("item-a"));
  EXPECT_EQ(*store.find_item("item-a")->find("text")->string(), "1");
  store.put("c", response("item-c", "3"));
  EXPECT_FALSE(store.find_item("item-a"));
  EXPECT_TRUE(store.find_item("item-b"));
  store.put("b", response("item-d", "4"));
  EXPECT_FALSE(store.find_item("item-b"));
  EXPECT_TRUE(store.find_item("item-c"));
  store.erase("b");
  EXPECT_FALSE(store.find_item("item-d"));
}

TEST(TokenPolicies, AChainForbidsWhatOneForbids) {
  const auto policy = chain_policies({nullptr, std::make_shared<AllowedIdsPolicy>(id_bits({1, 2, 70}, 100)),
                                      std::make_shared<AllowedIdsPolicy>(id_bits({2, 3, 70}, 100))});
  std::vector<uint64_t> bits(2, ~uint64_t{0});
  EXPECT_TRUE(policy->mask(bits));
  EXPECT_EQ(bits[0], uint64_t{1} << 2);
  EXPECT_EQ(bits[1], uint64_t{1} << 6);
  EXPECT_EQ(chain_policies({nullptr}), nullptr);
}

TEST(TokenPolicies, BadWordsAreForbiddenAtTheirLastToken) {
  BadWordsPolicy policy(
      std::make_shared<std::vector<std::vector<int32_t>>>(std::vector<std::vector<int32_t>>{{65}, {1, 2, 3}, {2, 4}}));
  const auto forbidden = [&] {
    std::vector<uint64_t> bits(2, ~uint64_t{0});
    EXPECT_TRUE(policy.mask(bits));
    std::vector<int> ids;
    for (int id = 0; id < 128; ++id) {
      if ((bits[static_cast<size_t>(id / 64)] >> (id % 64) & 1) == 0) ids.push_back(id);
    }
    return ids;
  };
  EXPECT_EQ(forbidden(), (std::vector{65}));
  for (const int32_t id : {1, 2}) EXPECT_EQ(policy.accept(id), PolicyVerdict::kContinue);
  EXPECT_EQ(forbidden(), (std::vector{3, 4, 65}));
  policy.accept(2);
  EXPECT_EQ(forbidden(), (std::vector{4, 65}));
  policy.rollback(2);
  EXPECT_EQ(forbidden(), (std::vector{65}));
}

// A policy of one of both kinds; counts the questions for its mask.
struct Policy final : TokenPolicy {
  explicit Policy(bool asks) : masking(asks) {}
  bool mask(std::span<uint64_t>) override {
    ++asked;
    return false;
  }
  bool masks() const override { return masking; }
  PolicyVerdict accept(int32_t) override { return PolicyVerdict::kContinue; }
  void rollback(int32_t) override {}

  bool masking;
  int asked = 0;
};

TEST(TokenPolicies, AChainMasksIfOneOfItDoes) {
  const auto stops = std::make_shared<Policy>(false), grammar = std::make_shared<Policy>(true);
  EXPECT_FALSE(chain_policies({stops, stops})->masks());
  EXPECT_TRUE(chain_policies({stops, grammar})->masks());
  std::vector<uint64_t> bits(2, ~uint64_t{0});
  EXPECT_FALSE(chain_policies({stops, grammar})->mask(bits));
  EXPECT_EQ(stops->asked, 0) << "nobody asks who never masks";
  EXPECT_EQ(grammar->asked, 1);
}

}  // namespace
}  // namespace folio
