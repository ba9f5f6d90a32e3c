#include "server/token_text.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace folio {

double printed_logprob(float logprob) {
  const float value = logprob >= kLeastLogprob ? logprob : kLeastLogprob;  // also of NaN
  // The shortest decimal that is this float, read as a double, prints as that decimal again.
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double printed = 0;
  std::from_chars(text, end, printed);
  return printed;
}

std::string completion_token(const Tokenizer& tokenizer, int32_t id, bool as_id) {
  if (as_id) return concat("token_id:", id);
  const std::string_view bytes = tokenizer.bytes(id);
  if (find_invalid_utf8(bytes) == bytes.size()) return std::string(bytes);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
  }
  return text;
}

ReplyJson chat_token(const Tokenizer& tokenizer, int32_t id, float logprob, bool as_id) {
  const std::string_view bytes = tokenizer.bytes(id);
  std::string text;
  if (as_id) {
    text = concat("token_id:", id);
  } else {
    append_utf8(bytes, true, text);
  }
  ReplyJson values = ReplyJson::array();
  for (const char c : bytes) values.push_back(static_cast<unsigned char>(c));
  return {{"token", std::move(text)}, {"logprob", printed_logprob(logprob)}, {"bytes", std::move(values)}};
}

ReplyJson chat_logprob(const Tokenizer& tokenizer, const TokenNews& token, int32_t alternatives, bool as_id) {
  ReplyJson entry = chat_token(tokenizer, token.id, token.logprob, as_id);
  ReplyJson top = ReplyJson::array();
  const size_t count = std::min(token.top.size(), static_cast<size_t>(alternatives));
  for (size_t i = 0; i < count; ++i) {
    if (token.top[i].id < 0) break;
    top.push_back(chat_token(tokenizer, token.top[i].id, token.top[i].logprob, as_id));
  }
  entry["top_logprobs"] = std::move(top);
  return entry;
}

ReplyJson prompt_logprobs(const Tokenizer& tokenizer, const std::vector<TokenNews>& tokens, int32_t alternatives) {
  ReplyJson entries = ReplyJson::array({nullptr});
  const auto entry = [&](int32_t id, float logprob, ReplyJson rank) {
    return ReplyJson{{"logprob", printed_logprob(logprob)},
                     {"rank", std::move(rank)},
                     {"decoded_token", completion_token(tokenizer, id, false)}};
  };
  for (const TokenNews& token : tokens) {
    ReplyJson position = ReplyJson::object();
    position[std::to_string(token.id)] = entry(token.id, token.logprob, nullptr);
    const size_t count = std::min(token.top.size(), static_cast<size_t>(alternatives));
    for (size_t i = 0; i < count && token.top[i].id >= 0; ++i) {
      position[std::to_string(token.top[i].id)] = entry(token.top[i].id, token.top[i].logprob, i + 1);
    }
    entries.push_back(std::move(position));
  }
  return entries;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace folio
