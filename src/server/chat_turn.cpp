#include "server/chat_turn.h"

namespace folio {
namespace {

AnswerEnd answer_end(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return AnswerEnd::kStop;
    case FinishReason::kLength:
      return AnswerEnd::kLength;
    default:
      return AnswerEnd::kAbort;
  }
}

}  // namespace

void ChatTurn::finish(FinishReason reason, std::vector<Delta>& deltas) {
  reason_ = reason;
  finished_ = true;
  reader_.finish(answer_end(reason), deltas);
}

std::string ChatTurn::finish_reason(bool named_call) const {
  if (reason_ == FinishReason::kAbort) return "abort";
  const std::string_view reason = chat_finish_reason(reader_.parser(), answer_end(reason_));
  return named_call && reason == "tool_calls" ? "stop" : std::string(reason);
}

}  // namespace folio
