// Reads tokenizer.json, an untrusted file (protocol spec 1.1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/pretokenizer.h"

namespace folio {

// What Folio uses of a tokenizer.json. The ids are as claimed: only TokenizerFile's reader has looked at them.
struct TokenizerFile {
  struct Token {
    std::string text;  // in `vocab` in the byte-level alphabet, in `added` literal
    int64_t id;
  };
  std::vector<Token> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // in rank order
  std::vector<Token> added;
  PreTokenizer pre_tokenizer = PreTokenizer::kDeepSeek;
};

// Parses and validates the form of a tokenizer.json: byte-level BPE without normaliser, with one of the two known
// pre-tokenisers. Throws Error(kInvalidTokenizer), prefixed with `origin`, on anything else: bad JSON, nesting deeper
// than 16, more than 2^20 tokens or merges, repeated keys, settings that would change ids and are not supported.
// Time and memory are bounded by the size of `json`.
TokenizerFile parse_tokenizer_file(std::string_view json, const std::string& origin);

// Largest tokenizer.json accepted, in bytes.
inline constexpr size_t kMaxTokenizerFileBytes = size_t{64} << 20;

}  // namespace folio
