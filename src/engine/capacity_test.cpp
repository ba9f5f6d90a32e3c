#include "engine/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace folio {
namespace {

using testing::HasSubstr;

// 1000 bytes of weights and 100 of activations; 4 slots of 50; PAGEs of 10 bytes and 16 tokens, 3 of them a request.
Capacity small(int64_t budget) {
  return {.budget = budget,
          .weights = 1000,
          .activations = 100,
          .state_bytes = 50,
          .page_bytes = 10,
          .block_size = 16,
          .max_model_len = 40,
          .slots = 4,
          .pages = 0};
}

TEST(Capacity, StateFirstThenPages) {
  EXPECT_EQ(plan_pages(small(1400), 0, 4, 0).pages, 10);
  EXPECT_EQ(plan_pages(small(1409), 0, 4, 0).pages, 10);
  EXPECT_EQ(plan_pages(small(1410), 0, 4, 0).pages, 11);
  EXPECT_EQ(plan_pages(small(100000), 0, 4, 0).pages, 12) << "no more than the requests can use";
  EXPECT_EQ(plan_pages(small(100000), 0, 8, 0).pages, 24);
  EXPECT_EQ(plan_pages(small(100000), 7, 4, 0).pages, 7);
  EXPECT_EQ(plan_pages(small(1400), 0, 4, 0).request_memory(), 400);
}

TEST(Capacity, OneRequestMustFit) {
  EXPECT_EQ(plan_pages(small(1330), 0, 4, 0).pages, 3);
  for (const int64_t budget : {int64_t{1329}, int64_t{1300}, int64_t{1299}, int64_t{10}}) {
    try {
      plan_pages(small(budget), 0, 4, 1 << 30);
      FAIL() << budget;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      EXPECT_THAT(error.what(), HasSubstr("3 PAGEs"));
      EXPECT_THAT(error.what(), HasSubstr("1 GiB are free"));
      EXPECT_THAT(error.what(), HasSubstr("--memory-budget"));
    }
  }
  EXPECT_EQ(plan_pages(small(1370), 7, 4, 0).pages, 7);
  EXPECT_THROW(plan_pages(small(1369), 7, 4, 0), Error);
}

TEST(Capacity, ManyPagesDoNotOverflow) {
  Capacity large = small(int64_t{1} << 60);
  large.max_model_len = 1 << 20;
  EXPECT_EQ(plan_pages(large, 0, int64_t{1} << 40, 0).pages, 2147483647);
  EXPECT_EQ(plan_pages(large, 0, 1, 0).request_memory(), 300 + int64_t{65536} * 10);
}

TEST(Capacity, Table) {
  const Capacity capacity = plan_pages(small(1400), 0, 4, 0);
  EXPECT_EQ(capacity.concurrent(40), 3);
  EXPECT_EQ(capacity.concurrent(32), 4) << "slots";
  EXPECT_EQ(capacity.concurrent(1), 4);
  const std::string table = capacity_table(capacity);
  EXPECT_THAT(table, HasSubstr("100 %     40            3             3"));
  EXPECT_THAT(table, HasSubstr("10 %      4             1             4"));
  EXPECT_THAT(table, HasSubstr("STATE, 4 slots"));
}

}  // namespace
}  // namespace folio
