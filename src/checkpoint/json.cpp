#include "checkpoint/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "checkpoint/text.h"

namespace folio {

nlohmann::json parse_json(std::string_view text, const std::string& origin, ErrorCode code) {
  using nlohmann::json;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (depth >= kMaxJsonDepth) fail(code, origin, ": nested deeper than ", kMaxJsonDepth, " levels");
        if (event == json::parse_event_t::object_start) keys.emplace_back();
        break;
      case json::parse_event_t::key:
        if (!keys.back().insert(parsed.get_ref<const std::string&>()).second) {
          fail(code, origin, ": the key ", quote(parsed.get_ref<const std::string&>()), " appears twice in one object");
        }
        break;
      case json::parse_event_t::object_end:
        keys.pop_back();
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::parse_error& error) {
    fail(code, origin, ": not valid JSON at byte ", error.byte);
  } catch (const json::exception&) {
    fail(code, origin, ": holds a number that is out of range");
  }
}

}  // namespace folio
