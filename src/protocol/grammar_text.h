// Texts that a character automaton takes, written down in bytes: raw, or as the inside of a JSON string.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "protocol/grammar_automaton.h"
#include "protocol/grammar_chars.h"

namespace folio {

// How characters are written. A JSON string of which any character is allowed may use every escape; elsewhere an escape
// is used only where there must be one, '"', '\' and the controls, in its short form or as \u00XX.
enum class TextForm : uint8_t {
  kRaw,
  kJson,
  kJsonWithCalls,  // U+FF5C is escaped too, so that no marker of a call block can come about
};

// Puts character automata into a network. `builder` must outlive it.
class TextWriter {
 public:
  explicit TextWriter(NetworkBuilder& builder) : builder_(&builder) {}

  // Adds what `text`, which is trimmed, takes behind the state `from`, which becomes part of it. Returns the states
  // where it may end.
  std::vector<uint32_t> write(const CharAutomaton& text, uint32_t from, TextForm form);

 private:
  // A leaf for the characters of `set` that are not one unescaped ASCII byte; 0 when there are none.
  uint32_t long_form_rule(const CharSet& set, TextForm form);
  void add_escapes(uint32_t from, const CharSet& set, uint32_t to);
  void add_all_escapes(uint32_t from, uint32_t to);

  NetworkBuilder* builder_;
  std::map<std::pair<CharSet, TextForm>, uint32_t> rules_;
};

// Adds the UTF-8 of low..high between two states; surrogates are left out.
void add_utf8(NetworkBuilder& builder, uint32_t from, char32_t low, char32_t high, uint32_t to);

}  // namespace folio
