#include "checkpoint/text.h"

#include <algorithm>

#include "base/error.h"

namespace folio {

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 160;
  std::string result = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return result + (text.size() > kLongest ? "...\"" : "\"");
}

std::string join_reasons(const std::string& origin, const std::vector<std::string>& reasons, size_t limit) {
  std::string message = origin + ": ";
  if (reasons.size() > 1) message += concat(reasons.size(), " problems: ");
  const size_t shown = std::min(limit, reasons.size());
  for (size_t i = 0; i < shown; ++i) message += (i ? "; " : "") + reasons[i];
  if (shown < reasons.size()) message += concat("; ... and ", reasons.size() - shown, " more");
  return message;
}

}  // namespace folio
