// Token ids of an answer, while they come, to reasoning, content and tool calls.
#pragma once

#include <cstdint>
#include <vector>

#include "protocol/stream_parser.h"
#include "tokenizer/detokenizer.h"

namespace folio {

// A Detokenizer with a StreamParser behind it. Tokens that are no text for a reader (ends of turns, roles, place
// holders) give none. `tokenizer` outlives it. Copyable.
class AnswerReader {
 public:
  AnswerReader(const Tokenizer& tokenizer, ParserOptions options)
      : tokenizer_(&tokenizer), detokenizer_(tokenizer), parser_(std::move(options)) {}

  // Appends what token `id` makes certain. Throws Error(kInvalidArgument) on an unknown id.
  void push(int32_t id, std::vector<Delta>& out);
  void finish(AnswerEnd end, std::vector<Delta>& out);

  const StreamParser& parser() const { return parser_; }
  // Tokens taken while reasoning, the one that ended it included.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  const Tokenizer* tokenizer_;
  Detokenizer detokenizer_;
  StreamParser parser_;
  int64_t reasoning_tokens_ = 0;
};

// Ids that end a chat answer beside the end of sentence: the model has begun the next turn (protocol spec 5.12). Those
// that the vocabulary has.
std::vector<int32_t> chat_stop_ids(const Tokenizer& tokenizer);

}  // namespace folio
