// The markup of tool calls (protocol spec 2.7, 3.2), and how its tags are found in text that is still coming.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace folio::dsml {

inline constexpr std::string_view kMarker = "｜DSML｜";
inline constexpr std::string_view kOpen = "<｜DSML｜";    // of an opening tag; one space and a word follow
inline constexpr std::string_view kClose = "</｜DSML｜";  // of a closing one

enum class Tag : uint8_t { kThink, kEndThink, kCalls, kEndCalls, kInvoke, kEndInvoke, kParameter };

// One spelling of a tag, from its '<' to the place where what differs begins.
struct Spelling {
  Tag tag;
  std::string_view text;
};

// What stands at a place of a text: nothing, a tag, or what may become one if more text comes.
struct Match {
  enum class Kind : uint8_t { kNone, kPartial, kFull } kind = Kind::kNone;
  Spelling spelling{};
};

Match match(std::string_view text, std::span<const Spelling> spellings);

// The leftmost place at or after `from` where match() finds something; text.size() and kNone when there is none.
struct Place {
  size_t at;
  Match match;
};
Place find(std::string_view text, size_t from, std::span<const Spelling> spellings);

// What is recognised where text flows, with and without calls; behind the opener of a block; between calls; between
// parameters.
std::span<const Spelling> thinking_tags();
std::span<const Spelling> text_tags();
std::span<const Spelling> tags_behind_opener();
std::span<const Spelling> call_tags();
std::span<const Spelling> parameter_tags();

// A word that names a block of calls: calls, or one of its older or mistaken spellings.
bool is_block_word(std::string_view word);

inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace folio::dsml
