#include "server/api_error.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/reply_json.h"

namespace folio {
namespace {

std::string_view openai_type(int status) {
  switch (status) {
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 408:
    case 504:
      return "TimeoutError";
    case 413:
      return "RequestTooLargeError";
    case 415:
      return "UnsupportedMediaTypeError";
    case 429:
      return "RateLimitError";
    case 500:
      return "InternalServerError";
    case 501:
      return "NotImplementedError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return "BadRequestError";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 500:
      return "api_error";
    case 503:
    case 529:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return "invalid_request_error";
  }
}

int status_of(const ApiError& error, ApiStyle style) {
  return style == ApiStyle::kAnthropic && error.status() == 503 ? 529 : error.status();
}

}  // namespace

ApiError to_api_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
      return {400, error.what()};
    case ErrorCode::kUnsupported:
      return {400, error.what()};
    case ErrorCode::kUnavailable:
      return {503, error.what(), "", 1};
    default:
      return {500, error.what()};
  }
}

std::string error_body(const ApiError& error, ApiStyle style) {
  if (style == ApiStyle::kAnthropic) {
    return dump(
        ReplyJson{{"type", "error"}, {"error", {{"type", anthropic_type(error.status())}, {"message", error.what()}}}});
  }
  const ReplyJson param = error.param().empty() ? ReplyJson(nullptr) : ReplyJson(error.param());
  return dump(ReplyJson{{"error",
                         {{"message", error.what()},
                          {"type", openai_type(error.status())},
                          {"param", param},
                          {"code", error.status()}}}});
}

HttpReply error_reply(const ApiError& error, ApiStyle style) {
  HttpReply reply{.status = status_of(error, style), .body = error_body(error, style), .headers = {}};
  if (error.retry_seconds() > 0) reply.headers.push_back({"Retry-After", std::to_string(error.retry_seconds())});
  if (error.status() == 401) reply.headers.push_back({"WWW-Authenticate", "Bearer"});
  return reply;
}

HttpReply method_not_allowed(std::string_view methods) {
  HttpReply reply =
      error_reply(ApiError(405, concat("Method not allowed: this path takes ", methods, ".")), ApiStyle::kOpenAi);
  reply.headers.push_back({"Allow", std::string(methods)});
  return reply;
}

}  // namespace folio
