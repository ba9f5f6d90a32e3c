// Requests and replies of HTTP/1.1 as the routes see them; sockets and parsing are in http_connection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace folio {

struct HttpHeader {
  std::string name, value;
};

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string path;    // percent-decoded, without the query
  std::string query;   // behind the '?', as sent
  std::vector<HttpHeader> headers;
  std::string body;
  std::string peer;  // address of the client, "" where unknown

  // The first header of that name, in any case; "" when there is none.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<HttpHeader> headers;  // beside Content-Type, Content-Length and Connection
};

// Splits a request's target, such as "/v1/models?x=1", into path and query. False when it is not an absolute path, has
// a bad escape or a control character: such a request is answered with 400.
bool split_target(std::string_view target, HttpRequest& request);

// "Not Found" for 404; "Unknown" for codes that Folio does not send.
std::string_view status_text(int status);

// How a client knows where the body of a reply ends.
enum class BodyEnd : uint8_t {
  kLength,  // its length is stated
  kChunks,  // it comes in chunks
  kClose,   // the connection ends with it
};

// Status line and headers of a reply, with the blank line. `close`: the connection ends with this reply. Header values
// must not hold control characters; those that do are left out.
std::string reply_head(const HttpReply& reply, BodyEnd end, bool close);

bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace folio
