#include "server/http_message.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace folio {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

bool is_clean(std::string_view text) { return std::none_of(text.begin(), text.end(), is_control); }

constexpr std::array<std::pair<int, std::string_view>, 20> kStatusTexts = {{
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {529, "Overloaded"},
}};

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& h : headers) {
    if (equal_ignoring_case(h.name, name)) return h.value;
  }
  return "";
}

bool HttpRequest::has_header(std::string_view name) const {
  return std::any_of(headers.begin(), headers.end(),
                     [&](const HttpHeader& h) { return equal_ignoring_case(h.name, name); });
}

bool split_target(std::string_view target, HttpRequest& request) {
  if (target.empty() || target[0] != '/') return false;
  const size_t mark = std::min(target.find('?'), target.size());
  request.query = mark < target.size() ? std::string(target.substr(mark + 1)) : "";
  request.path.clear();
  for (size_t i = 0; i < mark; ++i) {
    char c = target[i];
    if (c == '%') {
      const int high = i + 2 < mark ? hex_digit(target[i + 1]) : -1;
      const int low = i + 2 < mark ? hex_digit(target[i + 2]) : -1;
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (is_control(c)) return false;
    request.path += c;
  }
  return is_clean(request.query);
}

std::string_view status_text(int status) {
  for (const auto& [code, text] : kStatusTexts) {
    if (code == status) return text;
  }
  return "Unknown";
}

std::string reply_head(const HttpReply& reply, BodyEnd end, bool close) {
  std::string head = concat("HTTP/1.1 ", reply.status, " ", status_text(reply.status), "\r\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!is_clean(name) || !is_clean(value)) return;
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!reply.content_type.empty()) add("Content-Type", reply.content_type);
  for (const HttpHeader& header : reply.headers) add(header.name, header.value);
  if (end == BodyEnd::kChunks) {
    add("Transfer-Encoding", "chunked");
  } else if (end == BodyEnd::kLength && reply.status != 204 && reply.status != 304) {
    add("Content-Length", std::to_string(reply.body.size()));
  }
  if (close) add("Connection", "close");
  return head + "\r\n";
}

}  // namespace folio
