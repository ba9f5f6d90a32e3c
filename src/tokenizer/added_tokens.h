// Finds added tokens in text, leftmost-longest (protocol spec 1.4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace folio {

// Bytes begin..end-1 of a text.
struct ByteRange {
  size_t begin;
  size_t end;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

class AddedTokens {
 public:
  struct Token {
    std::string text;
    int32_t id;
  };
  struct Match {
    ByteRange range;
    int32_t id;
  };

  AddedTokens() = default;

  // The texts are distinct and not empty, the ids distinct.
  explicit AddedTokens(std::vector<Token> tokens);

  // The first match at or after `from`: at the leftmost place where a token starts, the longest one. Tokens that
  // overlap a range of `untrusted` (ascending, disjoint) do not count.
  std::optional<Match> find_next(std::string_view text, size_t from, std::span<const ByteRange> untrusted) const;

  std::optional<int32_t> find(std::string_view text) const;
  bool contains(int32_t id) const;

 private:
  std::optional<Match> longest_at(std::string_view text, size_t at, size_t limit) const;

  std::vector<Token> tokens_;       // ascending by text
  std::vector<int32_t> ids_;        // ascending
  std::array<bool, 256> starts_{};  // first bytes
};

}  // namespace folio
