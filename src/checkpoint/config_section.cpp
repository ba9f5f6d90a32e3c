#include "checkpoint/config_section.h"

#include <algorithm>
#include <cmath>

namespace folio {

using nlohmann::json;

std::string shown(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 8) return concat("a list of ", value.size(), " values");
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 80) + "...";
}

const json* ConfigSection::find(const char* key, bool required) {
  if (object_ == nullptr) return nullptr;
  const auto member = object_->find(key);
  if (member != object_->end()) return &*member;
  if (required) complain(key, "is missing");
  return nullptr;
}

void ConfigSection::complain(const std::string& key, const std::string& what) {
  reasons_.push_back(path_ + key + " " + what);
  bad_.insert(key);
}

ConfigSection ConfigSection::section(const char* key, bool required) {
  const nlohmann::json* member = find(key, required);
  if (member != nullptr && !member->is_object()) {
    complain(key, concat("must be an object, is ", shown(*member)));
    member = nullptr;
  }
  if (member == nullptr) bad_.insert(key);
  return ConfigSection(member, path_ + key + ".", reasons_);
}

void ConfigSection::constant(const char* key, const json& expected, bool required) {
  const nlohmann::json* member = find(key, required);
  if (member == nullptr || *member == expected) return;
  complain(key, concat("must be ", expected.dump(), ", is ", shown(*member)));
}

void ConfigSection::read_real(double& value, const char* key, double low, double high) {
  const nlohmann::json* member = find(key, true);
  if (member == nullptr) {
    bad_.insert(key);
    return;
  }
  const double number = member->is_number() ? member->get<double>() : std::nan("");
  if (number >= low && number <= high) {
    value = number;
  } else {
    complain(key, concat("must be a number from ", low, " to ", high, ", is ", shown(*member)));
  }
}

void ConfigSection::rule(std::initializer_list<const char*> keys, const std::function<bool()>& holds,
                         const std::function<std::string()>& message) {
  if (object_ == nullptr || !readable(keys)) return;
  if (!holds()) reasons_.push_back(path_ + message());
}

bool ConfigSection::readable(std::initializer_list<const char*> keys) const {
  return object_ != nullptr && std::none_of(keys.begin(), keys.end(), [&](const char* key) { return bad_.count(key); });
}

std::optional<int64_t> ConfigSection::integer(const json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  const auto number = value.get<int64_t>();
  if (number < low || number > high) return std::nullopt;
  return number;
}

}  // namespace folio
