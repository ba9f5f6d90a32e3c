// Token ids written as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace folio {

// The decimal ids in `text`, separated by white space, commas or both. Throws Error(kInvalidArgument), prefixed with
// `origin`, on anything that is not an integer from 0 to 2^31-1. Says nothing about a vocabulary.
std::vector<int32_t> parse_token_ids(std::string_view text, const std::string& origin);

}  // namespace folio
