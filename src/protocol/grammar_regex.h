// Regular expressions of JSON Schema (ECMA 262, without what is not regular) to automata.
#pragma once

#include <string_view>

#include "protocol/grammar_chars.h"

namespace folio {

enum class RegexMatch : uint8_t {
  kWhole,     // the pattern describes the whole text
  kAnywhere,  // some part of the text, unless it is anchored: what JSON Schema's "pattern" means
};

// What `pattern` matches. Supported: characters, '.', classes, \d \w \s and their complements, escapes, groups
// (capturing or not), alternatives, * + ? {m,n} (lazy ones match the same texts), ^ and $ at the ends of the pattern or
// of its alternatives. Throws Error(kInvalidArgument) naming what is malformed or not supported (references,
// lookaround, word borders, \p) and its place, or when the automaton gets too large.
CharAutomaton compile_regex(std::string_view pattern, RegexMatch match);

}  // namespace folio
