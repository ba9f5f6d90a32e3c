// Helpers of this room's tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "protocol/stream_parser.h"
#include "tokenizer/tokenizer_test_util.h"

namespace folio {

// The content of a file of the repository or beside it; absent when it is not there.
inline std::optional<std::string> read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// Test vectors in the repository, and those that may only be read from the folder beside it.
inline const std::string kVectors = FOLIO_SOURCE_DIR "/tests/vectors/";
inline const std::string kOutsideVectors = FOLIO_SOURCE_DIR "/../shared/vectors/";

// A stream of random choices.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  // One of 0 .. count-1.
  size_t below(size_t count) { return random_bits(seed_, 0, counter_++) % count; }
  template <typename T>
  const T& one_of(const std::vector<T>& items) {
    return items[below(items.size())];
  }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

// The published tokenizer, loaded once; null when tools/fetch_tokenizer.py has not been run.
inline const Tokenizer* published() {
  static const std::unique_ptr<const Tokenizer> tokenizer =
      published_tokenizer() ? std::make_unique<Tokenizer>(Tokenizer::load(*published_tokenizer())) : nullptr;
  return tokenizer.get();
}

// A string member that must be there.
inline std::string text_of(const Json& object, const char* key) { return *object.find(key)->string(); }

// The answer in `text`, pushed in parts that end at the offsets `cuts` (ascending), and its finish reason.
inline ParsedAnswer parse_answer(const ParserOptions& options, const std::string& text, const std::vector<size_t>& cuts,
                                 AnswerEnd end, std::string* reason = nullptr) {
  StreamParser parser(options);
  ParsedAnswer answer;
  std::vector<Delta> deltas;
  size_t from = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t to = i < cuts.size() ? cuts[i] : text.size();
    parser.push(std::string_view(text).substr(from, to - from), deltas);
    answer.add(deltas);
    deltas.clear();
    from = to;
  }
  parser.finish(end, deltas);
  answer.add(deltas);
  if (reason != nullptr) *reason = chat_finish_reason(parser, end);
  return answer;
}

// The places between the characters of a text.
inline std::vector<size_t> character_cuts(const std::string& text) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) cuts.push_back(i);
  }
  return cuts;
}

}  // namespace folio
