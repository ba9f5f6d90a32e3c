// The vectors of tests/vectors/api.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "server/reply_json.h"

namespace folio {

inline std::string read_vector(const std::string& name) {
  std::ifstream in(std::string(FOLIO_SOURCE_DIR "/tests/vectors/api/") + name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}
inline ReplyJson read_json_vector(const std::string& name) { return ReplyJson::parse(read_vector(name)); }

}  // namespace folio
