#include "tokenizer/utf8.h"

#include <cstring>

namespace folio {
namespace {

// Well-formed sequences by lead byte: how many continuation bytes follow and the range of the first of them.
struct Lead {
  uint8_t continuations;
  uint8_t low;
  uint8_t high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {0, 0, 0};
  if (byte < 0xC2) return {0, 1, 0};  // a continuation byte or an overlong lead: an empty range marks it
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte < 0xF4) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 1, 0};
}

// Number of leading ASCII bytes of text[at...], counted in words: may stop early, never late.
size_t ascii_prefix(std::string_view text, size_t at) {
  size_t end = at;
  uint64_t word = 0;
  while (end + sizeof(word) <= text.size()) {
    std::memcpy(&word, text.data() + end, sizeof(word));
    if ((word & 0x8080808080808080ull) != 0) break;
    end += sizeof(word);
  }
  return end - at;
}

}  // namespace

Utf8Sequence utf8_sequence(std::string_view text, size_t at) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(at));
  if (lead.low > lead.high) return {Utf8Kind::kInvalid, 1};
  uint8_t low = lead.low;
  uint8_t high = lead.high;
  uint8_t length = 1;
  for (; length <= lead.continuations; ++length) {
    if (at + length == text.size()) return {Utf8Kind::kIncomplete, length};
    if (byte(at + length) < low || byte(at + length) > high) return {Utf8Kind::kInvalid, length};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Kind::kValid, length};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    at += ascii_prefix(text, at);
    if (at == text.size()) break;
    const Utf8Sequence sequence = utf8_sequence(text, at);
    if (sequence.kind != Utf8Kind::kValid) return at;
    at += sequence.length;
  }
  return at;
}

size_t append_utf8(std::string_view text, bool final, std::string& out) {
  while (!text.empty()) {
    const size_t valid = find_invalid_utf8(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    const Utf8Sequence sequence = utf8_sequence(text, 0);
    if (sequence.kind == Utf8Kind::kIncomplete && !final) return text.size();
    out.append(kReplacementCharacter);
    text.remove_prefix(sequence.length);
  }
  return 0;
}

void append_code_point(char32_t code_point, std::string& out) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto continuation = [&](int shift) { put(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    continuation(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    continuation(6);
    continuation(0);
  } else {
    put(0xF0 | code_point >> 18);
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

}  // namespace folio
