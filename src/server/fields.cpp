#include "server/fields.h"

#include <cmath>

#include "base/error.h"
#include "server/api_error.h"

namespace folio {

Json parse_body(std::string_view text) {
  Json body;
  try {
    body = Json::parse(text);
  } catch (const Error& error) {
    throw ApiError(400, concat("The request body cannot be read: ", error.what()));
  }
  if (body.object() == nullptr) throw ApiError(400, "The request body must be a JSON object.");
  return body;
}

std::optional<int64_t> whole_number(const Json& value) {
  if (const auto integer = value.integer()) return integer;
  constexpr double kLimit = 9007199254740992.0;  // 2^53: doubles are exact up to here
  const auto number = value.number();
  if (!number || std::trunc(*number) != *number || std::abs(*number) > kLimit) return {};
  return static_cast<int64_t>(*number);
}

std::vector<int32_t> read_ids(const Json::Array& array, const std::string& field) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& item : array) {
    const auto id = item.integer();
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
      throw ApiError(400, concat("`", field, "` must be an array of token ids."), field);
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Fields::Fields(const Json& object, std::string name) : object_(object), name_(std::move(name)) {
  if (object.object() == nullptr) throw ApiError(400, concat("`", name_, "` must be an object."), name_);
}

std::string Fields::path(std::string_view field) const {
  return name_.empty() ? std::string(field) : concat(name_, ".", field);
}

void Fields::refuse(std::string_view field, std::string_view must) const {
  const std::string where = path(field);
  throw ApiError(400, concat("`", where, "` must be ", must, "."), where);
}

const Json* Fields::find(std::string_view field) const {
  const Json* found = object_.find(field);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::optional<bool> Fields::boolean(std::string_view field) const {
  const Json* value = find(field);
  if (value == nullptr) return {};
  if (!value->boolean()) refuse(field, "true or false");
  return value->boolean();
}

std::optional<int64_t> Fields::integer(std::string_view field, int64_t least, int64_t most) const {
  const Json* value = find(field);
  if (value == nullptr) return {};
  const auto number = whole_number(*value);
  if (number && *number >= least && *number <= most) return number;
  if (least == std::numeric_limits<int64_t>::min()) refuse(field, "a whole number of 64 bits");
  if (most == std::numeric_limits<int64_t>::max()) refuse(field, concat("a whole number, at least ", least));
  refuse(field, concat("a whole number from ", least, " to ", most));
}

std::optional<double> Fields::number(std::string_view field, double least, double most) const {
  const Json* value = find(field);
  if (value == nullptr) return {};
  const double number = value->number().value_or(std::nan(""));
  if (!(number >= least && number <= most)) refuse(field, concat("a number from ", least, " to ", most));
  return number;
}

std::optional<std::string> Fields::string(std::string_view field) const {
  const Json* value = find(field);
  if (value == nullptr) return {};
  if (value->string() == nullptr) refuse(field, "a string");
  return *value->string();
}

const Json::Array* Fields::array(std::string_view field) const {
  const Json* value = find(field);
  if (value == nullptr) return nullptr;
  if (value->array() == nullptr) refuse(field, "an array");
  return value->array();
}

const Json* Fields::object(std::string_view field) const {
  const Json* value = find(field);
  if (value != nullptr && value->object() == nullptr) refuse(field, "an object");
  return value;
}

std::vector<std::string> Fields::strings(std::string_view field) const {
  std::vector<std::string> strings;
  const Json* value = find(field);
  if (value == nullptr) return strings;
  const auto take = [&](const Json& item) {
    if (item.is_null()) return;
    if (item.string() == nullptr) refuse(field, "a string or an array of strings");
    if (!item.string()->empty()) strings.push_back(*item.string());
  };
  if (value->array() == nullptr) {
    take(*value);
  } else {
    for (const Json& item : *value->array()) take(item);
  }
  return strings;
}

}  // namespace folio
