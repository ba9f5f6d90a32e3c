// The reply of /v1/messages: blocks of thinking, text and tool use (protocol spec 5.8).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/reply_json.h"

namespace folio {

struct AnthropicAnswerOptions {
  std::string id, model;
  bool stream = false;
  int64_t prompt_tokens = 0;
};

class AnthropicAnswer final : public Answer {
 public:
  AnthropicAnswer(const Tokenizer& tokenizer, const ParserOptions& parser, AnthropicAnswerOptions options)
      : options_(std::move(options)), turn_(tokenizer, parser) {}

  void begin(std::string& out) override;
  void on_prefill(int32_t, int64_t cached) override { cached_tokens_ = cached; }
  void on_token(int32_t choice, const TokenNews& token, std::string& out) override;
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, std::string& out) override;
  void end(std::string& out) override;
  std::string body() override;
  void fail(const ApiError& error, std::string& out) override;
  ApiStyle style() const override { return ApiStyle::kAnthropic; }
  std::string finish_reason(int32_t) const override { return stop_reason(); }

 private:
  enum class Block : uint8_t { kThinking, kText, kToolUse };

  void take(std::vector<Delta>& deltas, std::string& out);
  void open(Block block, const ReplyJson& content, std::string& out);
  void close(std::string& out);
  void send_delta(std::string_view type, std::string_view member, const std::string& text, std::string& out);
  void send(std::string_view type, ReplyJson data, std::string& out) const;
  ReplyJson message(ReplyJson content, const ReplyJson& reason, const ReplyJson& usage) const;
  std::string stop_reason() const;
  ReplyJson stop_sequence() const;

  const AnthropicAnswerOptions options_;
  ChatTurn turn_;
  std::vector<Delta> deltas_;
  std::optional<Block> open_;
  int32_t index_ = -1;  // of the last block
  ParsedAnswer answer_;
  std::vector<std::string> call_ids_;
  TotalUsage usage_;
  int64_t cached_tokens_ = 0;  // of the prompt, as far as is known
};

}  // namespace folio
