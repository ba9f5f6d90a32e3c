// The fields of a request's JSON, typed and bounded.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/json.h"

namespace folio {

// The object in a request's body (protocol spec 5.1). Throws ApiError(400).
Json parse_body(std::string_view text);

// Reads the fields of one object of a request. null counts as not there. Throws ApiError(400) that names the field.
class Fields {
 public:
  // `object` must outlive it. `name` stands before a field's in messages: "messages[2]". Throws when it is no object.
  explicit Fields(const Json& object, std::string name = "");

  // Null when it is not there.
  const Json* find(std::string_view field) const;
  bool has(std::string_view field) const { return find(field) != nullptr; }

  std::optional<bool> boolean(std::string_view field) const;
  // A whole number from `least` to `most`; 5.0 is one, true is not.
  std::optional<int64_t> integer(std::string_view field, int64_t least = std::numeric_limits<int64_t>::min(),
                                 int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::optional<double> number(std::string_view field, double least, double most) const;
  std::optional<std::string> string(std::string_view field) const;
  // Null when it is not there.
  const Json::Array* array(std::string_view field) const;
  const Json* object(std::string_view field) const;
  // A string, or an array of strings; null and empty ones are left out.
  std::vector<std::string> strings(std::string_view field) const;

  // "messages[2].content"
  std::string path(std::string_view field) const;
  [[noreturn]] void refuse(std::string_view field, std::string_view must) const;

 private:
  const Json& object_;
  std::string name_;
};

// The token ids in an array; throws ApiError(400) that names `field`.
std::vector<int32_t> read_ids(const Json::Array& array, const std::string& field);

// The value as a whole number, also when it is written as 5.0; nothing when it is none of 64 bits.
std::optional<int64_t> whole_number(const Json& value);

}  // namespace folio
