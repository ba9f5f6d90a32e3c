// Where cached rows lie and how they are written: addresses for ops, made by cache/geometry. Offsets are bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace folio {

enum class RowFormat : uint8_t {
  kBf16,       // dim bf16 values that lie on the quantiser's grid
  kFp8Window,  // E4M3 codes [dim], UE8M0 scales [dim/32]          (QDQ8, spec 0.3)
  kFp4Main,    // packed E2M1 [dim/2], E4M3 scales [dim/16]        (QDQ4_16, spec 0.5)
  kFp4Index,   // packed E2M1 [dim/2], UE8M0 scales [dim/32]       (QDQ4_32, spec 0.4)
  kFp8Index,   // E4M3 codes [dim], one UE8M0 scale                (spec runtime 2.2)
};

// Bytes of the codes (or values) and of the scales of one row.
constexpr int64_t code_bytes(RowFormat format, int64_t dim) {
  switch (format) {
    case RowFormat::kBf16:
      return 2 * dim;
    case RowFormat::kFp8Window:
    case RowFormat::kFp8Index:
      return dim;
    case RowFormat::kFp4Main:
    case RowFormat::kFp4Index:
      return dim / 2;
  }
  return 0;
}
constexpr int64_t scale_bytes(RowFormat format, int64_t dim) {
  switch (format) {
    case RowFormat::kBf16:
      return 0;
    case RowFormat::kFp8Window:
    case RowFormat::kFp4Index:
      return dim / 32;
    case RowFormat::kFp4Main:
      return dim / 16;
    case RowFormat::kFp8Index:
      return 1;
  }
  return 0;
}

// One row: its codes and its scales, somewhere in memory.
struct RowAddress {
  std::byte* codes;
  std::byte* scales;
};

// The rows of one owner's plane in PAGE memory. Row j of a request is row j % rows_per_page of page table[j /
// rows_per_page].
struct PagedRows {
  std::byte* base = nullptr;  // of PAGE 0
  int64_t page_stride = 0;
  int64_t codes_offset = 0;  // of row 0 in its page
  int64_t code_stride = 0;   // between rows
  int64_t scales_offset = 0;
  int64_t scale_stride = 0;
  int32_t rows_per_page = 1;
  int32_t dim = 0;
  RowFormat format = RowFormat::kBf16;

  RowAddress at(const int32_t* page_table, int64_t row) const {
    std::byte* page = base + page_table[row / rows_per_page] * page_stride;
    const int64_t in_page = row % rows_per_page;
    return {page + codes_offset + in_page * code_stride, page + scales_offset + in_page * scale_stride};
  }
};

// One layer's ring of window rows in STATE: position p is at ring row p % ring_rows.
struct RingRows {
  std::byte* base = nullptr;  // ring row 0 of slot 0
  int64_t slot_stride = 0;
  int64_t row_stride = 0;  // codes, then scales
  int32_t ring_rows = 0;
  int32_t dim = 0;
  RowFormat format = RowFormat::kBf16;

  RowAddress at(int32_t slot, int64_t position) const {
    return row_at(base + slot * slot_stride, position % ring_rows);
  }
  // Row `index` of a plain array of rows in the ring's format, such as the rows that a step adds.
  RowAddress row_at(std::byte* rows, int64_t index) const {
    std::byte* row = rows + index * row_stride;
    return {row, row + code_bytes(format, dim)};
  }
};

// One owner's ring of pending compressor inputs in STATE (fp32): position p is at ring row p % ring_rows.
struct PendingRows {
  std::byte* base = nullptr;  // of slot 0
  int64_t slot_stride = 0;
  int64_t gate_offset = 0;  // of the gates behind the values
  int32_t ring_rows = 0;
  int32_t dim = 0;

  float* value(int32_t slot, int64_t position) const {
    return reinterpret_cast<float*>(base + slot * slot_stride) + position % ring_rows * dim;
  }
  float* gate(int32_t slot, int64_t position) const {
    return reinterpret_cast<float*>(base + slot * slot_stride + gate_offset) + position % ring_rows * dim;
  }
};

}  // namespace folio
