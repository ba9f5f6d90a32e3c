#include "cache/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "cache/cache_view.h"
#include "ops/row_codec.h"

namespace folio {
namespace {

GeometryInputs published(int32_t block_size, bool packed) {
  return {.owners = {{2, 2}, {8, 2}, {14, 2}, {20, 1}},
          .window_layers = 40,
          .window = 128,
          .head_dim = 512,
          .index_dim = 128,
          .block_size = block_size,
          .format = {.packed = packed}};
}

TEST(Geometry, SizesAtThePublishedDims) {
  for (const int32_t block : {16, 32, 64, 128, 256}) {
    EXPECT_EQ(Geometry(published(block, true)).page_bytes(), 890 * block);
    EXPECT_EQ(Geometry(published(block, false)).page_bytes(), 2730 * block);
  }
  // An fp8 key takes 129 bytes for the 68 of fp4, less than the 132 of spec runtime 2.3.
  GeometryInputs fp8 = published(128, true);
  fp8.format.fp8_index = true;
  EXPECT_EQ(Geometry(fp8).page_bytes(), 133440);
  fp8.format.packed = false;
  EXPECT_EQ(Geometry(fp8).page_bytes(), 133440 + 2730 * 128 - 890 * 128);
  // Upper bounds from spec runtime 2.4; ours leaves out the pending ring of the ratio-1 owner.
  EXPECT_LE(Geometry(published(128, true)).state_bytes(), 2736384);
  EXPECT_LE(Geometry(published(128, false)).state_bytes(), 5276672);
  EXPECT_EQ(Geometry(published(128, true)).image_ranges(0).front().bytes, 40 * 128 * 528 + 64);
}

TEST(Geometry, PagesForTokens) {
  const Geometry geometry(published(128, true));
  EXPECT_EQ(geometry.pages_for(0), 0);
  EXPECT_EQ(geometry.pages_for(1), 1);
  EXPECT_EQ(geometry.pages_for(128), 1);
  EXPECT_EQ(geometry.pages_for(129), 2);
}

// Every byte that a row of a page uses, over all planes: inside the page, and no byte twice.
TEST(Geometry, RowsOfAPageAreDisjoint) {
  for (const CacheFormat format : {CacheFormat{true, false}, {false, false}, {true, true}}) {
    GeometryInputs inputs = published(18, true);
    inputs.format = format;
    inputs.head_dim = 96;
    inputs.index_dim = 32;
    const Geometry geometry(inputs);
    const std::vector<int32_t> table = {3, 1};
    std::vector<std::byte> pages(static_cast<size_t>(4 * geometry.page_bytes()));
    std::set<int64_t> seen;
    const auto claim = [&](const std::byte* start, int64_t bytes) {
      for (int64_t i = 0; i < bytes; ++i) {
        const int64_t at = start - pages.data() + i;
        EXPECT_TRUE(seen.insert(at).second) << at;
        const int64_t page = at / geometry.page_bytes();
        EXPECT_TRUE(page == 3 || page == 1);
      }
    };
    for (size_t owner = 0; owner < inputs.owners.size(); ++owner) {
      for (const PagedRows& rows :
           {geometry.main_rows(pages.data(), owner), geometry.index_rows(pages.data(), owner)}) {
        EXPECT_EQ(rows.rows_per_page, 18 / inputs.owners[owner].ratio);
        for (int64_t j = 0; j < 2 * rows.rows_per_page; ++j) {
          const RowAddress row = rows.at(table.data(), j);
          claim(row.codes, code_bytes(rows.format, rows.dim));
          claim(row.scales, scale_bytes(rows.format, rows.dim));
        }
      }
    }
  }
}

TEST(Geometry, FieldsOfASlotAreDisjointAndInside) {
  GeometryInputs inputs = published(128, true);
  inputs.window_layers = 3;
  inputs.window = 4;
  inputs.slack = 1;
  inputs.head_dim = 32;
  const Geometry geometry(inputs);
  std::vector<std::byte> states(static_cast<size_t>(2 * geometry.state_bytes()));
  std::set<int64_t> seen;
  const auto claim = [&](const void* start, int64_t bytes) {
    const int64_t at = static_cast<const std::byte*>(start) - states.data() - geometry.state_bytes();
    for (int64_t i = at; i < at + bytes; ++i) {
      EXPECT_TRUE(i >= 0 && i < geometry.state_bytes() && seen.insert(i).second) << i;
    }
  };
  for (int32_t layer = 0; layer < 3; ++layer) {
    const RingRows ring = geometry.window_rows(states.data(), layer);
    EXPECT_EQ(ring.ring_rows, 5);
    for (int64_t p = 100; p < 105; ++p) {
      claim(ring.at(1, p).codes, code_bytes(ring.format, ring.dim));
      claim(ring.at(1, p).scales, scale_bytes(ring.format, ring.dim));
    }
  }
  claim(geometry.cursors(states.data()) + geometry.state_bytes(), sizeof(SlotCursor));
  for (size_t owner = 0; owner < 3; ++owner) {
    const PendingRows pending = geometry.pending_rows(states.data(), owner);
    EXPECT_EQ(pending.ring_rows, 3);
    for (int64_t p = 7; p < 10; ++p) {
      claim(pending.value(1, p), 32 * 4);
      claim(pending.gate(1, p), 32 * 4);
    }
  }
  // The image holds rings and cursor and nothing else.
  const auto ranges = geometry.image_ranges(1);
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].offset, geometry.state_bytes());
  const auto whole = geometry.state_ranges(1);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].offset, geometry.state_bytes());
  EXPECT_EQ(whole[0].bytes, geometry.state_bytes());
  EXPECT_EQ(ranges[0].bytes, 512 + 64);  // 3 * 5 * 33 bytes of rings and 40 of cursor, each rounded up to 32
}

TEST(Geometry, PagesPastTwoGibibytes) {
  const Geometry geometry(published(128, true));
  const auto device = make_cpu_device();
  PagePool pages(*device, geometry, 40000);  // 4.2 GiB of address space, untouched but for one row
  const std::vector<int32_t> table = {39999};
  const PagedRows rows = geometry.index_rows(pages.data(), 3);
  const RowAddress row = rows.at(table.data(), 127);
  EXPECT_EQ(row.codes - pages.data(), 39999LL * geometry.page_bytes() + rows.codes_offset + 127 * 64);
  std::vector<float> x(128, 1.5f), back(128);
  encode_row(RowFormat::kFp4Index, rows.format, x.data(), 128, row);
  decode_row(rows.format, row.codes, row.scales, 128, back.data());
  EXPECT_EQ(back, x);
}

TEST(Geometry, RefusesWithEveryReason) {
  GeometryInputs inputs = published(15, true);
  inputs.head_dim = 48;
  inputs.owners[1].ratio = 3;
  try {
    const Geometry geometry(inputs);
    FAIL() << "accepted " << geometry.identity();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("block size 15"), testing::HasSubstr("head_dim 48"),
                                             testing::HasSubstr("ratio 3 of layer 8")));
  }
}

TEST(Geometry, IdentityNamesTheLayout) {
  std::set<std::string> identities;
  for (const int32_t block : {16, 128}) {
    for (const bool packed : {true, false}) {
      GeometryInputs inputs = published(block, packed);
      identities.insert(Geometry(inputs).identity());
      inputs.format.fp8_index = true;
      identities.insert(Geometry(inputs).identity());
      inputs.slack = 5;
      identities.insert(Geometry(inputs).identity());
      inputs.owners.pop_back();
      identities.insert(Geometry(inputs).identity());
    }
  }
  EXPECT_EQ(identities.size(), 16u);
}

TEST(IdPool, HandsOutEveryIdOnce) {
  IdPool pool(3);
  std::set<int32_t> ids;
  while (const auto id = pool.allocate()) ids.insert(*id);
  EXPECT_EQ(ids, (std::set<int32_t>{0, 1, 2}));
  pool.release(1);
  EXPECT_EQ(pool.available(), 1);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_DEATH(pool.release(7), "id 7");
  pool.reset();
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_DEATH(pool.release(1), "id 1");
}

}  // namespace
}  // namespace folio
