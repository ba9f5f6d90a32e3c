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

// Status line and headers of a reply, with the blank line. `chunked`: the body follows in chunks, its length is not
// stated. `close`: the connection ends with this reply. Header values must not hold control characters; those that do
// are left out.
std::string reply_head(const HttpReply& reply, bool chunked, bool close);

bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace folio
