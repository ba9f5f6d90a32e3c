#include "tokenizer/token_ids.h"

#include <charconv>

#include "base/error.h"

namespace folio {

std::vector<int32_t> parse_token_ids(std::string_view text, const std::string& origin) {
  constexpr std::string_view kSeparators = " \t\r\n\f\v,";
  std::vector<int32_t> ids;
  size_t at = text.find_first_not_of(kSeparators);
  while (at != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view item = text.substr(at, end - at);
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    if (error != std::errc() || stop != item.data() + item.size() || id < 0) {
      constexpr size_t kShown = 40;
      fail(ErrorCode::kInvalidArgument, origin, ": item ", ids.size() + 1, ", \"", item.substr(0, kShown),
           item.size() > kShown ? "..." : "", "\", is not a token id (an integer from 0 to 2147483647)");
    }
    ids.push_back(id);
    at = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

}  // namespace folio
