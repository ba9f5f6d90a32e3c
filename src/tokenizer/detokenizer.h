// Token ids to text while they arrive (protocol spec 1.8).
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace folio {

// Joins the bytes of tokens and gives out whole characters only. What it gave out, with flush() at the end, equals
// Tokenizer::decode of all ids, however they were spread over calls.
class Detokenizer {
 public:
  // With `skip_hidden`, tokens with Tokenizer::is_hidden() give no text. `tokenizer` outlives the detokenizer.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_hidden = true)
      : tokenizer_(&tokenizer), skip_hidden_(skip_hidden) {}

  // The text that `id` completes: well-formed UTF-8, bytes that can never be part of a character replaced by U+FFFD.
  // Up to three bytes of an unfinished character are held back. Throws Error(kInvalidArgument) on an unknown id.
  std::string push(int32_t id);

  // What is held back, as U+FFFD: for the end of a generation. Empty when nothing is.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_hidden_;
  std::string pending_;  // an unfinished character
};

}  // namespace folio
