// The letters of byte-level vocabularies: one printable character for each byte (protocol spec 1.2).
#pragma once

#include <array>
#include <cstdint>

namespace folio {

// Code points below 0x800. Printable bytes stand for themselves; the others, in ascending order, are U+0100 onward.
constexpr std::array<char32_t, 256> byte_letters() {
  std::array<char32_t, 256> letters{};
  char32_t moved = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    letters[byte] = printable ? byte : moved++;
  }
  return letters;
}

}  // namespace folio
