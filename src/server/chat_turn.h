// One choice of a chat: tokens to deltas, and how it ended. Shared by the chat APIs.
#pragma once

#include <string>
#include <vector>

#include "protocol/answer_reader.h"
#include "server/answer.h"

namespace folio {

class ChatTurn {
 public:
  ChatTurn(const Tokenizer& tokenizer, const ParserOptions& parser) : reader_(tokenizer, parser) {}

  // Both append deltas.
  void push(const TokenNews& token, std::vector<Delta>& deltas) {
    last_id_ = token.id;
    ++tokens_;
    reader_.push(token.id, deltas);
  }
  void finish(FinishReason reason, std::vector<Delta>& deltas);

  bool finished() const { return finished_; }
  // "stop", "length", "tool_calls" or "abort". A call that was asked for by name ends as "stop".
  std::string finish_reason(bool named_call) const;
  // The stop string that ended it; null: none.
  const std::string* stop() const { return reader_.parser().stop(); }
  int32_t last_id() const { return last_id_; }  // -1: no token yet
  int64_t tokens() const { return tokens_; }
  int64_t reasoning_tokens() const { return reader_.reasoning_tokens(); }
  bool reasoning() const { return reader_.parser().reasoning(); }

 private:
  AnswerReader reader_;
  int32_t last_id_ = -1;
  int64_t tokens_ = 0;
  bool finished_ = false;
  FinishReason reason_ = FinishReason::kAbort;
};

}  // namespace folio
