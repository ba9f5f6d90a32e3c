// A small cache for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "cache/geometry.h"
#include "cache/images.h"
#include "cache/prefix_index.h"
#include "cache/state_copies.h"

namespace folio::test {

constexpr int32_t kBlock = 16;

// Two owners of different ratios, three window rings; a boundary image takes some pages, a private one more.
inline GeometryInputs small_inputs(int32_t slack = 0) {
  return {.owners = {{1, 2}, {2, 1}},
          .window_layers = 3,
          .window = 16,
          .slack = slack,
          .head_dim = 32,
          .index_dim = 32,
          .block_size = kBlock,
          .format = {.packed = true}};
}

// The contract of ops/copy.h: no destination of a stage overlaps another range of the stage.
inline void expect_independent_stages(const CopyPlan& plan) {
  size_t first = 0;
  for (const int32_t end : plan.stage_ends()) {
    for (size_t i = first; i < static_cast<size_t>(end); ++i) {
      const CopyRange& a = plan.ranges()[i];
      const auto overlaps = [&](const std::byte* start, int64_t bytes) {
        return start < a.destination + a.bytes && a.destination < start + bytes;
      };
      EXPECT_FALSE(overlaps(a.source, a.bytes)) << i;
      for (size_t j = first; j < static_cast<size_t>(end); ++j) {
        const CopyRange& b = plan.ranges()[j];
        EXPECT_FALSE(i != j && (overlaps(b.source, b.bytes) || overlaps(b.destination, b.bytes))) << i << " " << j;
      }
    }
    first = static_cast<size_t>(end);
  }
}

struct SmallCache {
  explicit SmallCache(int32_t num_pages, int32_t num_slots = 4)
      : geometry(small_inputs()),
        device(make_cpu_device()),
        pages(*device, geometry, num_pages),
        states(*device, geometry, num_slots),
        index(pages, kBlock),
        images(geometry, pages),
        copies(*device, geometry, pages, states, images) {
    index.set_eviction_hook([this](const BlockHash& hash) { images.unindex(hash); });
  }

  int32_t units() const { return image_units(geometry, ImageKind::kBoundary); }
  // Drains, runs and completes what is queued.
  void run() {
    CopyPlan plan;
    copies.drain(plan);
    expect_independent_stages(plan);
    plan.run(*ops);
    copies.complete();
  }
  std::vector<std::byte> slot(int32_t id) const { return bytes(states.data(), geometry.state_ranges(id)); }
  static std::vector<std::byte> bytes(const std::byte* memory, const std::vector<MemoryRange>& ranges) {
    std::vector<std::byte> out;
    for (const MemoryRange& range : ranges) {
      out.insert(out.end(), memory + range.offset, memory + range.offset + range.bytes);
    }
    return out;
  }
  // Fills a slot with random bytes, all of them.
  void scramble_slot(int32_t id, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const MemoryRange& range : geometry.state_ranges(id)) {
      for (int64_t i = 0; i < range.bytes; ++i) states.data()[range.offset + i] = static_cast<std::byte>(random());
    }
  }
  SlotCursor& cursor(int32_t id) {
    return *reinterpret_cast<SlotCursor*>(geometry.cursors(states.data()) + id * geometry.state_bytes());
  }

  Geometry geometry;
  std::unique_ptr<Device> device;
  PagePool pages;
  StatePool states;
  PrefixIndex index;
  ImageStore images;
  StateCopies copies;
  std::unique_ptr<Ops> ops = make_reference_ops();
};

// `blocks` full blocks and `rest` more tokens; equal names give equal blocks.
inline std::vector<int32_t> tokens_of(const std::vector<int32_t>& blocks, int32_t rest = 1) {
  std::vector<int32_t> tokens;
  for (const int32_t name : blocks) {
    for (int32_t i = 0; i < kBlock; ++i) tokens.push_back(100 * name + i);
  }
  for (int32_t i = 0; i < rest; ++i) tokens.push_back(7);
  return tokens;
}

inline BlockHashes hashes_of(const std::vector<int32_t>& tokens, std::vector<ImageSpan> images = {},
                             BlockHashFunction function = block_hash) {
  BlockHashes hashes(kBlock, std::move(images), function);
  hashes.extend(tokens);
  return hashes;
}

}  // namespace folio::test
