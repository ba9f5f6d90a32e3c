// How file content that nobody vouches for is quoted in messages, and how several reasons become one message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace folio {

// `text` in double quotes on one line: control characters and invalid bytes become '?', long text is cut.
std::string quote(std::string_view text);

// "origin: reason", or "origin: N problems: reason; reason; ... and M more" with at most `limit` reasons spelled out.
std::string join_reasons(const std::string& origin, const std::vector<std::string>& reasons, size_t limit);

}  // namespace folio
