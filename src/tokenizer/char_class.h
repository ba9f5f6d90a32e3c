// Unicode classes of code points, pinned to Unicode 16.0.0 (protocol spec 1.5).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace folio {

// Bits of a code point's class: the five general categories that pre-tokenisers ask for and the property White_Space.
enum CharClass : uint8_t {
  kLetter = 1,
  kMark = 2,
  kNumber = 4,
  kPunctuation = 8,
  kSymbol = 16,
  kWhiteSpace = 32,
};

// Two-stage table of CharClass bits for all code points.
class CharClassTable {
 public:
  // The one table, expanded on first use (under a millisecond); safe from any thread.
  static const CharClassTable& instance();

  // Bits of `code_point`, which is below 0x110000.
  uint8_t operator[](char32_t code_point) const {
    return classes_[static_cast<size_t>(block_[code_point >> kBlockBits]) << kBlockBits | (code_point & kBlockMask)];
  }

 private:
  CharClassTable();

  static constexpr int kBlockBits = 7;
  static constexpr char32_t kBlockMask = (1 << kBlockBits) - 1;
  std::array<uint16_t, (0x110000 >> kBlockBits)> block_;
  std::vector<uint8_t> classes_;
};

}  // namespace folio
