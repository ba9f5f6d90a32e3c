#include "server/api_keys.h"

#include <fstream>

#include "base/error.h"

namespace folio {

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other));
  }
  return difference == 0;
}

bool ApiKeys::contains(std::string_view key) const {
  bool found = false;
  for (const std::string& known : keys_) found = equal_in_constant_time(known, key) || found;
  return found;
}

bool ApiKeys::allow(const HttpRequest& request) const {
  if (keys_.empty()) return true;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view authorization = request.header("Authorization");
  if (authorization.size() > kBearer.size() && equal_ignoring_case(authorization.substr(0, kBearer.size()), kBearer) &&
      contains(authorization.substr(kBearer.size()))) {
    return true;
  }
  const std::string_view key = request.header("x-api-key");
  return !key.empty() && contains(key);
}

std::vector<std::string> read_key_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail(ErrorCode::kNotFound, "--api-key-file ", path, ": cannot be read");
  std::vector<std::string> keys;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) fail(ErrorCode::kInvalidArgument, "--api-key-file ", path, ": has no key");
  return keys;
}

}  // namespace folio
