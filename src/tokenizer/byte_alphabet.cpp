#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/byte_letters.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

constexpr char32_t kAlphabetEnd = 0x100 + 68;

struct Alphabet {
  std::array<char32_t, 256> of_byte = byte_letters();
  std::array<int16_t, kAlphabetEnd> byte_of{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) alphabet.byte_of[alphabet.of_byte[byte]] = static_cast<int16_t>(byte);
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

bool bytes_of_spelling(std::string_view spelling, std::string& bytes) {
  bytes.clear();
  if (find_invalid_utf8(spelling) != spelling.size()) return false;
  for (size_t at = 0; at < spelling.size();) {
    const auto [letter, length] = decode_utf8(spelling.data() + at);
    if (letter >= kAlphabetEnd || kAlphabet.byte_of[letter] < 0) return false;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[letter]));
    at += length;
  }
  return true;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) append_code_point(kAlphabet.of_byte[static_cast<unsigned char>(byte)], spelling);
  return spelling;
}

}  // namespace folio
