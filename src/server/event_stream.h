// Server-sent events.
#pragma once

#include <string>
#include <string_view>

namespace folio {

inline constexpr std::string_view kKeepAliveComment = ": keep-alive\n\n";
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// Around the data of an event, which has no line breaks.
inline void begin_event(std::string& out) { out += "data: "; }
inline void end_event(std::string& out) { out += "\n\n"; }

inline void append_event(std::string_view data, std::string& out) {
  begin_event(out);
  out += data;
  end_event(out);
}
inline void append_event(std::string_view name, std::string_view data, std::string& out) {
  out.append("event: ").append(name).append("\n");
  append_event(data, out);
}

}  // namespace folio
