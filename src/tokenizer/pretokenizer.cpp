#include "tokenizer/pretokenizer.h"

#include "tokenizer/utf8.h"

namespace folio {
namespace {

constexpr uint8_t kWord = kLetter | kMark;
constexpr uint8_t kPunct = kPunctuation | kSymbol;

bool is_line_break(char32_t c) { return c == '\r' || c == '\n'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Step 2 of the published pre-tokeniser: ideographs of the original block, hiragana, katakana.
bool is_cjk(char32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }

}  // namespace

inline PieceScanner::Char PieceScanner::char_at(size_t at) const {
  const auto [code_point, length] = decode_utf8(text_.data() + at);
  return {code_point, length, classes_[code_point]};
}

// End of the run of characters with a bit of `mask` from `at`, inside the segment.
size_t PieceScanner::run_end(size_t at, uint8_t mask) const {
  while (at < segment_end_) {
    const Char c = char_at(at);
    if ((c.bits & mask) == 0) break;
    at += c.length;
  }
  return at;
}

// Steps 1 and 2: finds the segment that starts at at_. True when it is a digit group, which no later step cuts.
bool PieceScanner::open_segment() {
  const Char first = char_at(at_);
  size_t end = at_ + first.length;
  if ((first.bits & kNumber) != 0) {
    for (int digits = 1; digits < 3 && end < text_.size(); ++digits) {
      const Char c = char_at(end);
      if ((c.bits & kNumber) == 0) break;
      end += c.length;
    }
    segment_end_ = end;
    return true;
  }
  const bool cjk = is_cjk(first.code_point);
  while (end < text_.size()) {
    const Char c = char_at(end);
    if ((c.bits & kNumber) != 0 || is_cjk(c.code_point) != cjk) break;
    end += c.length;
  }
  segment_end_ = end;
  return false;
}

// `\s*[\r\n]+` (with keep_line_breaks), `\s+(?!\S)` and `\s+`, in this order, on the white space from `at`.
size_t PieceScanner::white_space_end(size_t at, bool keep_line_breaks) const {
  size_t end = at;
  size_t last = at;        // start of the last character
  size_t after_break = 0;  // end of the last line break; 0: none
  while (end < segment_end_) {
    const Char c = char_at(end);
    if ((c.bits & kWhiteSpace) == 0) break;
    last = end;
    end += c.length;
    if (is_line_break(c.code_point)) after_break = end;
  }
  if (keep_line_breaks && after_break != 0) return after_break;
  // The last character is left to the word that follows, unless it is the only one or nothing follows.
  return end == segment_end_ || last == at ? end : last;
}

// Step 3: end of the match that starts at `at`, or `at` itself when none does.
size_t PieceScanner::match_end(size_t at) const {
  const Char c = char_at(at);
  const size_t after = at + c.length;
  if ((c.bits & kPunct) != 0 && c.code_point < 0x80 && after < segment_end_ && is_ascii_letter(text_[after])) {
    size_t end = after + 1;
    while (end < segment_end_ && is_ascii_letter(text_[end])) ++end;
    return end;
  }
  if ((c.bits & kLetter) != 0) return run_end(after, kWord);
  const uint8_t next_bits = after < segment_end_ ? char_at(after).bits : uint8_t{0};
  if ((c.bits & kPunct) == 0 && !is_line_break(c.code_point)) {
    if ((next_bits & kWord) != 0) return run_end(after, kWord);
    if ((c.bits & kMark) != 0) return after;
  }
  if ((c.bits & kPunct) != 0 || (c.code_point == ' ' && (next_bits & kPunct) != 0)) {
    size_t end = run_end(after, kPunct);
    while (end < segment_end_ && is_line_break(static_cast<unsigned char>(text_[end]))) ++end;
    return end;
  }
  return (c.bits & kWhiteSpace) != 0 ? white_space_end(at, true) : at;
}

// GPT-2's expression, which matches at every position.
size_t PieceScanner::byte_level_end(size_t at) const {
  const std::string_view rest = text_.substr(at);
  for (const std::string_view suffix : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (rest.starts_with(suffix)) return at + suffix.size();
  }
  const Char first = char_at(at);
  Char c = first;
  size_t start = at;
  if (first.code_point == ' ' && at + 1 < text_.size()) {
    start = at + 1;
    c = char_at(start);
  }
  if ((c.bits & kWhiteSpace) != 0) return white_space_end(at, false);
  if ((c.bits & (kLetter | kNumber)) != 0) return run_end(start, c.bits);
  size_t end = start;
  while (end < text_.size()) {
    const Char other = char_at(end);
    if ((other.bits & (kLetter | kNumber | kWhiteSpace)) != 0) break;
    end += other.length;
  }
  return end;
}

bool PieceScanner::next(std::string_view& piece) {
  if (at_ == text_.size()) return false;
  const size_t start = at_;
  if (kind_ == PreTokenizer::kByteLevel) {
    segment_end_ = text_.size();
    at_ = byte_level_end(start);
  } else if (at_ == segment_end_ && open_segment()) {
    at_ = segment_end_;
  } else {
    at_ = match_end(start);
    if (at_ == start) {  // no match: a gap up to where one begins
      do at_ += char_at(at_).length;
      while (at_ < segment_end_ && match_end(at_) == at_);
    }
  }
  piece = text_.substr(start, at_ - start);
  return true;
}

}  // namespace folio
