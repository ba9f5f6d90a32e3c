#include "protocol/dsml.h"

#include <algorithm>
#include <array>

namespace folio::dsml {
namespace {

constexpr std::array<Spelling, 2> kThinkingTags = {{{Tag::kThink, "<think>"}, {Tag::kEndThink, "</think>"}}};

constexpr std::array<Spelling, 12> kTextTags = {{{Tag::kThink, "<think>"},
                                                 {Tag::kEndThink, "</think>"},
                                                 {Tag::kCalls, "<｜DSML｜ calls>"},
                                                 {Tag::kCalls, "<｜DSML｜calls>"},
                                                 {Tag::kCalls, "<｜DSML｜ tool_calls>"},
                                                 {Tag::kCalls, "<｜DSML｜tool_calls>"},
                                                 {Tag::kCalls, "<｜DSML｜ toolcalls>"},
                                                 {Tag::kCalls, "<｜DSML｜toolcalls>"},
                                                 {Tag::kCalls, "<｜DSML｜ function_calls>"},
                                                 {Tag::kCalls, "<｜DSML｜function_calls>"},
                                                 {Tag::kInvoke, "<｜DSML｜ invoke name=\""},
                                                 {Tag::kInvoke, "<｜DSML｜invoke name=\""}}};

constexpr std::array<Spelling, 4> kTagsBehindOpener = {{{Tag::kInvoke, "<｜DSML｜"},
                                                        {Tag::kEndCalls, "</｜DSML｜"},
                                                        {Tag::kInvoke, "<invoke name=\""},
                                                        {Tag::kParameter, "<parameter name=\""}}};

// The last eleven are those between calls.
constexpr std::array<Spelling, 16> kParameterTags = {{{Tag::kParameter, "<｜DSML｜ parameter name=\""},
                                                      {Tag::kParameter, "<｜DSML｜parameter name=\""},
                                                      {Tag::kParameter, "<parameter name=\""},
                                                      {Tag::kEndInvoke, "</｜DSML｜ invoke>"},
                                                      {Tag::kEndInvoke, "</｜DSML｜invoke>"},
                                                      {Tag::kInvoke, "<｜DSML｜ invoke name=\""},
                                                      {Tag::kInvoke, "<｜DSML｜invoke name=\""},
                                                      {Tag::kInvoke, "<invoke name=\""},
                                                      {Tag::kEndCalls, "</｜DSML｜ calls>"},
                                                      {Tag::kEndCalls, "</｜DSML｜calls>"},
                                                      {Tag::kEndCalls, "</｜DSML｜ tool_calls>"},
                                                      {Tag::kEndCalls, "</｜DSML｜tool_calls>"},
                                                      {Tag::kEndCalls, "</｜DSML｜ toolcalls>"},
                                                      {Tag::kEndCalls, "</｜DSML｜toolcalls>"},
                                                      {Tag::kEndCalls, "</｜DSML｜ function_calls>"},
                                                      {Tag::kEndCalls, "</｜DSML｜function_calls>"}}};

constexpr std::array<std::string_view, 4> kBlockWords = {"calls", "tool_calls", "toolcalls", "function_calls"};

}  // namespace

std::span<const Spelling> thinking_tags() { return kThinkingTags; }
std::span<const Spelling> text_tags() { return kTextTags; }
std::span<const Spelling> tags_behind_opener() { return kTagsBehindOpener; }
std::span<const Spelling> call_tags() { return std::span(kParameterTags).subspan(5); }
std::span<const Spelling> parameter_tags() { return kParameterTags; }

bool is_block_word(std::string_view word) {
  return std::find(kBlockWords.begin(), kBlockWords.end(), word) != kBlockWords.end();
}

Match match(std::string_view text, std::span<const Spelling> spellings) {
  Match best;
  for (const Spelling& spelling : spellings) {
    if (text.starts_with(spelling.text)) return {Match::Kind::kFull, spelling};
    if (spelling.text.starts_with(text)) best.kind = Match::Kind::kPartial;
  }
  return best;
}

Place find(std::string_view text, size_t from, std::span<const Spelling> spellings) {
  for (size_t at = text.find('<', from); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const Match found = match(text.substr(at), spellings);
    if (found.kind != Match::Kind::kNone) return {at, found};
  }
  return {text.size(), {}};
}

}  // namespace folio::dsml
