// JSON as the commands write it, a value a line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace folio {

// Text may have been cut within a character: that is replaced.
inline std::string json_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace folio
