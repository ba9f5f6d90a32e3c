// What is wrong with a field of a request.
#pragma once

#include <string>

#include "base/error.h"

namespace folio {

// Error(kInvalidArgument) that knows which field it is about. what() is "field: reason".
class FieldError : public Error {
 public:
  FieldError(std::string field, const std::string& reason)
      : Error(ErrorCode::kInvalidArgument, concat(field, ": ", reason)), field_(std::move(field)) {}
  // Its place in the request, such as "messages[2].tool_calls[0].function.name".
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

// The name of an element of a field: "messages[2]".
inline std::string element_of(const std::string& field, size_t index) { return concat(field, "[", index, "]"); }

template <typename... Parts>
[[noreturn]] void fail_field(const std::string& field, const Parts&... parts) {
  throw FieldError(field, concat(parts...));
}

}  // namespace folio
