// Server-sent events.
#pragma once

#include <string>
#include <string_view>

namespace folio {

inline constexpr std::string_view kKeepAliveComment = ": keep-alive\n\n";
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// `data` has no line breaks.
inline void append_event(std::string_view data, std::string& out) { out.append("data: ").append(data).append("\n\n"); }
inline void append_event(std::string_view name, std::string_view data, std::string& out) {
  out.append("event: ").append(name).append("\n");
  append_event(data, out);
}

}  // namespace folio
