// Cuts text into the pieces that byte-pair encoding works on (protocol spec 1.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/char_class.h"

namespace folio {

enum class PreTokenizer : uint8_t {
  // The published one: digits in groups of up to three, runs of CJK ideographs and kana, then words, punctuation and
  // white space, each step seeing only the pieces of the step before.
  kDeepSeek,
  // `ByteLevel` with its own regular expression (GPT-2's): contractions, words, numbers, the rest, white space.
  kByteLevel,
};

// Walks over the pieces of one text from left to right. The pieces are never empty and together are the text.
// Time is linear in the text, memory constant.
class PieceScanner {
 public:
  // `text` is well-formed UTF-8 and outlives the scanner.
  PieceScanner(PreTokenizer kind, std::string_view text)
      : classes_(CharClassTable::instance()), kind_(kind), text_(text) {}

  // Sets `piece` to the next piece; false at the end of the text.
  bool next(std::string_view& piece);

 private:
  struct Char {
    char32_t code_point;
    uint32_t length;
    uint8_t bits;
  };
  Char char_at(size_t at) const;
  size_t run_end(size_t at, uint8_t mask) const;
  bool open_segment();
  size_t match_end(size_t at) const;
  size_t white_space_end(size_t at, bool keep_line_breaks) const;
  size_t byte_level_end(size_t at) const;

  const CharClassTable& classes_;
  PreTokenizer kind_;
  std::string_view text_;
  size_t at_ = 0;           // where the next piece starts
  size_t segment_end_ = 0;  // end of what the innermost step may see: a digit group, a CJK run or a stretch between
};

}  // namespace folio
