#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace folio {

AddedTokens::AddedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.text < b.text; });
  ids_.reserve(tokens_.size());
  for (const Token& token : tokens_) {
    ids_.push_back(token.id);
    starts_[static_cast<unsigned char>(token.text.front())] = true;
  }
  std::sort(ids_.begin(), ids_.end());
}

bool AddedTokens::contains(int32_t id) const { return std::binary_search(ids_.begin(), ids_.end(), id); }

std::optional<int32_t> AddedTokens::find(std::string_view text) const {
  const auto token = std::lower_bound(tokens_.begin(), tokens_.end(), text,
                                      [](const Token& a, std::string_view b) { return a.text < b; });
  if (token == tokens_.end() || token->text != text) return std::nullopt;
  return token->id;
}

// Narrows the sorted list byte by byte to the tokens that share text[at...] so far; the first of them is the one that
// ends there, if any does.
std::optional<AddedTokens::Match> AddedTokens::longest_at(std::string_view text, size_t at, size_t limit) const {
  std::optional<Match> longest;
  auto begin = tokens_.begin();
  auto end = tokens_.end();
  for (size_t depth = 0; at + depth < limit; ++depth) {
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    const auto byte_of = [depth](const Token& token) { return static_cast<unsigned char>(token.text[depth]); };
    begin = std::partition_point(begin, end, [&](const Token& token) { return byte_of(token) < byte; });
    end = std::partition_point(begin, end, [&](const Token& token) { return byte_of(token) <= byte; });
    if (begin == end) break;
    if (begin->text.size() == depth + 1) {
      longest = Match{{at, at + depth + 1}, begin->id};
      if (++begin == end) break;
    }
  }
  return longest;
}

std::optional<AddedTokens::Match> AddedTokens::find_next(std::string_view text, size_t from,
                                                         std::span<const ByteRange> untrusted) const {
  size_t range = 0;
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(text[at])]) continue;
    while (range < untrusted.size() && (untrusted[range].end <= at || untrusted[range].begin == untrusted[range].end)) {
      ++range;
    }
    size_t limit = text.size();
    if (range < untrusted.size()) {
      if (untrusted[range].begin <= at) {
        at = untrusted[range].end - 1;
        continue;
      }
      limit = untrusted[range].begin;
    }
    if (const auto match = longest_at(text, at, limit)) return match;
  }
  return std::nullopt;
}

}  // namespace folio
