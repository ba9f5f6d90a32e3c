// Sizes and offsets of the two currencies of request memory: PAGE (what grows with history) and STATE (one fixed entry
// per running request). Knows no model and no scheduler; allocation, addressing, images and offload all read it
// (docs/adr/0005, spec runtime 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/cache_rows.h"
#include "ops/rows.h"

namespace folio {

// How rows are stored: --kv-cache-dtype and --index-cache-dtype.
struct CacheFormat {
  bool packed = true;      // main rows FP4 and window rows FP8; else both bf16
  bool fp8_index = false;  // index keys E4M3 under one scale a row; else FP4, the official arithmetic

  RowFormat main() const { return packed ? RowFormat::kFp4Main : RowFormat::kBf16; }
  RowFormat window() const { return packed ? RowFormat::kFp8Window : RowFormat::kBf16; }
  RowFormat index() const { return fp8_index ? RowFormat::kFp8Index : RowFormat::kFp4Index; }
  auto operator<=>(const CacheFormat&) const = default;
};

// What the layout depends on.
struct GeometryInputs {
  struct Owner {
    int32_t layer = 0;
    int32_t ratio = 1;  // tokens per entry, 1 or 2
  };
  std::vector<Owner> owners;  // layers with compressed entries of their own, ascending
  int32_t window_layers = 0;  // layers with a window ring
  int32_t window = 0;         // positions that a query sees, its own included
  int32_t slack = 0;          // further ring rows, so that rejected speculative rows overwrite nothing that counts
  int32_t head_dim = 0;
  int32_t index_dim = 0;
  int32_t block_size = 128;  // tokens of a PAGE
  CacheFormat format;
};

struct MemoryRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};

class Geometry {
 public:
  // Every start inside a PAGE or a STATE entry is a multiple of this, and so are their sizes.
  static constexpr int64_t kAlignment = 32;
  static constexpr int32_t kMinBlockSize = 16;

  // Throws Error(kInvalidArgument) naming every rule that the inputs break.
  explicit Geometry(GeometryInputs inputs);

  const GeometryInputs& inputs() const { return inputs_; }
  int64_t page_bytes() const { return page_bytes_; }
  int64_t state_bytes() const { return state_bytes_; }
  // PAGE bytes of one token of history.
  double bytes_per_token() const { return static_cast<double>(page_bytes_) / inputs_.block_size; }
  // PAGEs that hold `tokens` tokens of history.
  int64_t pages_for(int64_t tokens) const { return (tokens + inputs_.block_size - 1) / inputs_.block_size; }

  // Names the layout and the arithmetic behind its bytes; an image with another identity is refused.
  std::string identity() const;

  // Addresses, given the pools' memory. `owner` indexes inputs().owners, `layer` is below window_layers.
  PagedRows main_rows(std::byte* pages, size_t owner) const;
  PagedRows index_rows(std::byte* pages, size_t owner) const;
  RingRows window_rows(std::byte* states, int32_t layer) const;
  PendingRows pending_rows(std::byte* states, size_t owner) const;  // of an owner of ratio 2
  std::byte* cursors(std::byte* states) const { return states + cursor_offset_; }

  // The bytes of one PAGE in the page pool.
  std::vector<MemoryRange> page_ranges(int64_t page) const;
  // Those of one STATE entry in the state pool that an image at a PAGE border carries: the window rings and the cursor.
  // Pending compressor rows are left out: no group is open there (spec runtime 2.9).
  std::vector<MemoryRange> image_ranges(int64_t slot) const;
  // Those of a whole STATE entry, for copies that may be taken anywhere.
  std::vector<MemoryRange> state_ranges(int64_t slot) const;

 private:
  struct Plane {
    int64_t main_offset = 0;
    int64_t index_codes = 0;
    int64_t index_scales = 0;
    int64_t pending_offset = 0;  // in STATE
  };
  int32_t ring_rows() const { return inputs_.window + inputs_.slack; }
  int32_t pending_rows() const { return 2 + inputs_.slack; }

  GeometryInputs inputs_;
  std::vector<Plane> planes_;
  int64_t page_bytes_ = 0;
  int64_t window_row_stride_ = 0;
  int64_t cursor_offset_ = 0;
  int64_t state_bytes_ = 0;
};

}  // namespace folio
