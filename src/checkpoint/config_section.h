// Reading config.json: the members of an object by key, with every reason why they cannot be used.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace folio {

// A value as it is shown in a message.
std::string shown(const nlohmann::json& value);

// One JSON object: reads members by key, and notes what is wrong with them.
class ConfigSection {
 public:
  // `object` may be null for a part that is not there: then every read quietly gives a default.
  ConfigSection(const nlohmann::json* object, std::string path, std::vector<std::string>& reasons)
      : object_(object), path_(std::move(path)), reasons_(reasons) {}

  // The member, or null (with a reason when it is required).
  const nlohmann::json* find(const char* key, bool required);

  // Adds a reason, and `key` to those that have no usable value.
  void complain(const std::string& key, const std::string& what);

  // A sub-object; a null one when it is absent or not an object.
  ConfigSection section(const char* key, bool required);

  // The member must equal `expected`. An absent one is a reason only when it is required.
  void constant(const char* key, const nlohmann::json& expected, bool required);

  // An integer with low <= value <= high.
  template <typename Integer>
  void read(Integer& value, const char* key, int64_t low, int64_t high, bool required = true) {
    const nlohmann::json* member = find(key, required);
    if (member == nullptr) {
      bad_.insert(key);
      return;
    }
    if (const auto number = integer(*member, low, high)) {
      value = static_cast<Integer>(*number);
    } else {
      complain(key, concat("must be an integer from ", low, " to ", high, ", is ", shown(*member)));
    }
  }

  // A finite number with low <= value <= high.
  void read_real(double& value, const char* key, double low, double high);

  // At most `max_count` such integers.
  template <typename Integer>
  void read_list(std::vector<Integer>& values, const char* key, size_t max_count, int64_t low, int64_t high) {
    const nlohmann::json* member = find(key, true);
    if (member == nullptr) {
      bad_.insert(key);
      return;
    }
    if (!member->is_array() || member->size() > max_count) {
      complain(key, concat("must be a list of at most ", max_count, " integers, is ", shown(*member)));
      return;
    }
    for (size_t i = 0; i < member->size(); ++i) {
      const auto number = integer((*member)[i], low, high);
      if (!number) {
        complain(concat(key, "[", i, "]"),
                 concat("must be an integer from ", low, " to ", high, ", is ", shown((*member)[i])));
        bad_.insert(key);
      }
      values.push_back(static_cast<Integer>(number.value_or(low)));
    }
  }

  // Notes `message` when `holds` is false; not evaluated when one of `keys` could not be read.
  void rule(std::initializer_list<const char*> keys, const std::function<bool()>& holds,
            const std::function<std::string()>& message);
  // Whether all of `keys` had usable values.
  bool readable(std::initializer_list<const char*> keys) const;
  bool present() const { return object_ != nullptr; }

 private:
  static std::optional<int64_t> integer(const nlohmann::json& value, int64_t low, int64_t high);

  const nlohmann::json* object_;
  std::string path_;
  std::vector<std::string>& reasons_;
  std::set<std::string> bad_;  // keys that have no usable value
};

}  // namespace folio
