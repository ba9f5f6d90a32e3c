// UTF-8: strict validation, decoding of what is valid, and replacement of what is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace folio {

enum class Utf8Kind : uint8_t {
  kValid,       // a whole, well-formed sequence
  kInvalid,     // bytes that no continuation can make well-formed
  kIncomplete,  // a well-formed beginning that the end of the text cuts off
};

// The sequence at one place of a text. `length` is 1 to 4 bytes; of an ill-formed sequence it is the longest part that
// could begin a well-formed one, which is what one U+FFFD stands for (Unicode, "maximal subpart").
struct Utf8Sequence {
  Utf8Kind kind;
  uint8_t length;
};

// The sequence that starts at text[at]; `at` is inside the text. Overlong forms, surrogates and code points above
// U+10FFFF are invalid.
Utf8Sequence utf8_sequence(std::string_view text, size_t at);

// Offset of the first byte that is not part of a whole, well-formed sequence; text.size() when there is none.
size_t find_invalid_utf8(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Appends `text` to `out` with every ill-formed part replaced by U+FFFD. An incomplete sequence at the end is replaced
// when `final`, otherwise left out; returns how many of its bytes (0 to 3) were left out.
size_t append_utf8(std::string_view text, bool final, std::string& out);

struct DecodedChar {
  char32_t code_point;
  uint32_t length;  // bytes
};

// The code point that starts at `bytes`, which hold well-formed UTF-8.
inline DecodedChar decode_utf8(const char* bytes) {
  const auto byte = [bytes](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// Appends the UTF-8 form of `code_point`, a Unicode scalar value.
void append_code_point(char32_t code_point, std::string& out);

}  // namespace folio
