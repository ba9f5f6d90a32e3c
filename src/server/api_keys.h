// API keys (protocol spec 5.1).
#pragma once

#include <string>
#include <vector>

#include "server/http_message.h"

namespace folio {

// Equal in a time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

class ApiKeys {
 public:
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  bool empty() const { return keys_.empty(); }
  // The request has one of the keys, as "Authorization: Bearer KEY" or "x-api-key: KEY", or there are none.
  bool allow(const HttpRequest& request) const;

 private:
  bool contains(std::string_view key) const;
  std::vector<std::string> keys_;
};

// The keys in a file: one a line, '#' begins a comment line. Throws Error(kNotFound, kInvalidArgument).
std::vector<std::string> read_key_file(const std::string& path);

}  // namespace folio
