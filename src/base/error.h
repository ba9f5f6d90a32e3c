// The one error type of Folio, and the check for broken invariants (docs/architecture.md, "Errors").
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace folio {

// What kind of thing went wrong. The command line and the server map codes to exit and HTTP status.
enum class ErrorCode {
  kInvalidArgument,    // a flag, a prompt or a request field
  kInvalidConfig,      // config.json
  kInvalidCheckpoint,  // safetensors shards or their index
  kInvalidTokenizer,   // tokenizer.json
  kNotFound,           // a file or directory that is not there or not readable
  kOutOfMemory,        // does not fit the memory that there is
  kUnsupported,        // valid, but not something this build can do
  kUnavailable,        // not now: full, failed or shut down
  kInternal,           // a bug in Folio
};

// Thrown at boundaries: files, configuration, requests, allocation. The message names the offending value and the fix.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The streamed values of all arguments, one after the other.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));
  return std::move(out).str();
}

// Throws Error(code) with the concatenation of the parts.
template <typename... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, concat(parts...));
}

// Reports a broken invariant and aborts: only a bug in Folio gets here, never data.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace folio

// Aborts with the condition and the optional streamed details unless `condition` holds.
#define FOLIO_CHECK(condition, ...)                                                                        \
  do {                                                                                                     \
    if (!(condition)) ::folio::check_failed(__FILE__, __LINE__, #condition, ::folio::concat(__VA_ARGS__)); \
  } while (false)
