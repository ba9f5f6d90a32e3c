#include "server/reply_json.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

namespace folio {

std::string dump(const ReplyJson& value) { return value.dump(-1, ' ', false, ReplyJson::error_handler_t::replace); }

void append_quoted(std::string_view text, std::string& out) {
  out += '"';
  append_json_escaped(text, out);
  out += '"';
}

ReplyJson to_reply(const Json& value) { return ReplyJson::parse(json_text(value), nullptr, false); }

std::string random_id(std::string_view prefix) {
  static constexpr char kHex[] = "0123456789abcdef";
  thread_local std::random_device random;  // ids open stored responses, so nobody may guess them
  std::string id(prefix);
  for (int word = 0; word < 3; ++word) {
    uint32_t bits = random();
    for (int i = 0; i < 8; ++i, bits >>= 4) id += kHex[bits & 15];
  }
  return id;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace folio
