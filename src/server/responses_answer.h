// The reply of /v1/responses: items of reasoning, messages and calls (protocol spec 5.9).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "protocol/messages.h"
#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/reply_json.h"
#include "server/response_store.h"

namespace folio {

struct ResponsesAnswerOptions {
  std::string id, model;
  bool stream = false;
  std::set<std::string> custom_tools;  // whose calls have a text for arguments
  ReplyJson settings;                  // of the request, repeated in the reply
  std::vector<Message> messages;       // the conversation before the answer, without instructions
  ResponseStore* store = nullptr;      // where the response is kept; null: nowhere
};

class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(const Tokenizer& tokenizer, const ParserOptions& parser, ResponsesAnswerOptions options)
      : options_(std::move(options)), turn_(tokenizer, parser), created_(unix_seconds()) {}

  void begin(std::string& out) override;
  void on_token(int32_t choice, const TokenNews& token, std::string& out) override;
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, std::string& out) override;
  void end(std::string& out) override;
  std::string body() override;
  void fail(const ApiError& error, std::string& out) override;
  std::string finish_reason(int32_t) const override { return turn_.finish_reason(false); }

 private:
  enum class Kind : uint8_t { kReasoning, kMessage, kCall, kCustomCall };
  struct Item {
    Kind kind;
    std::string id, call_id, name;  // the name is qualified
    std::string text;               // of reasoning or message, or the arguments
    bool complete = false;
  };

  void take(std::vector<Delta>& deltas, std::string& out);
  void open(Kind kind, const std::string& name, std::string& out);
  void close(bool complete, std::string& out);
  void add_text(const std::string& text, std::string& out);
  ReplyJson item_json(const Item& item, bool begun) const;
  std::string custom_input(const Item& item) const;
  ReplyJson part_json(const Item& item, const std::string& text) const;
  void send(std::string_view type, ReplyJson data, std::string& out);
  ReplyJson response(std::string_view status, bool with_output) const;
  bool cut_off() const { return reason_ == FinishReason::kLength; }
  void keep(const std::string& body) const;

  const ResponsesAnswerOptions options_;
  ChatTurn turn_;
  const int64_t created_;
  std::vector<Delta> deltas_;
  std::vector<Item> items_;
  bool open_ = false;  // the last item is
  int64_t sequence_ = 0;
  FinishReason reason_ = FinishReason::kAbort;
  TotalUsage usage_;
};

}  // namespace folio
