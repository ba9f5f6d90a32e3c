// What a client is told when its request fails: each API's own shape and status (protocol spec 5.2, 5.8).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace folio {

enum class ApiStyle {
  kOpenAi,     // chat completions, completions, responses and everything without a style of its own
  kAnthropic,  // /v1/messages
};

// Thrown while a request is read; ends as an HTTP status or, when a stream has begun, as an event of it.
class ApiError : public std::runtime_error {
 public:
  // `param`: the field that is wrong, "" for none. `retry_seconds`: for 429 and 503, when to come back; 0: not said.
  ApiError(int status, const std::string& message, std::string param = "", int retry_seconds = 0)
      : std::runtime_error(message), status_(status), param_(std::move(param)), retry_seconds_(retry_seconds) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }
  int retry_seconds() const { return retry_seconds_; }

 private:
  int status_;
  std::string param_;
  int retry_seconds_;
};

// ApiError for a folio::Error: 400 for what is wrong with the request, 429 or 503 for what is not possible now, 500
// otherwise.
class Error;
ApiError to_api_error(const Error& error);

// The body alone, as in a reply or an event.
std::string error_body(const ApiError& error, ApiStyle style);
// The whole reply, with Retry-After and WWW-Authenticate where they belong.
HttpReply error_reply(const ApiError& error, ApiStyle style);
// 405 with the methods that the path takes, such as "GET, DELETE".
HttpReply method_not_allowed(std::string_view methods);

}  // namespace folio
