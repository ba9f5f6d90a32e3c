#include "protocol/grammar_text.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tokenizer/utf8.h"

namespace folio {
namespace {

CharSet ascii() { return CharSet({{0, 0x7F}}); }
constexpr char32_t kBar = 0xFF5C;  // the first character of markers

// Characters of JSON strings that are never written as they are.
CharSet must_escape(TextForm form) {
  if (form == TextForm::kRaw) return {};
  const CharSet always({{0, 0x1F}, {U'"', U'"'}, {U'\\', U'\\'}});
  return form == TextForm::kJson ? always : always | CharSet::of(kBar);
}

CharSet plain_set(PlainText kind) {
  const CharSet odd = kind == PlainText::kJson ? must_escape(TextForm::kJson) : CharSet::of(U'<');
  return (odd | CharSet::of(kBar)).complement();
}

// The state that takes all plain characters to one place and none elsewhere says where; itself when it takes none.
struct PlainStep {
  bool known = false;
  bool any = false;  // takes plain characters
  uint32_t target = 0;
};

PlainStep plain_step(const CharAutomaton& text, uint32_t state, const CharSet& plain) {
  PlainStep step;
  if (!text.states()[state].jumps.empty()) return step;
  for (const auto& edge : text.states()[state].edges) {
    const CharSet common = text.set(edge.set) & plain;
    if (common.empty()) continue;
    if (step.any || common != plain) return {};
    step.any = true;
    step.target = edge.target;
  }
  step.known = true;
  return step;
}

constexpr int32_t kUnknownRoom = -1;

// [state]: how many plain characters it takes, all texts of so many; kUnknownRoom where that is not so.
std::vector<int32_t> plain_rooms(const CharAutomaton& text, PlainText kind) {
  constexpr int32_t kOpen = -2, kNotYet = -3;
  const CharSet plain = plain_set(kind);
  std::vector<int32_t> room(text.states().size(), kNotYet);
  std::vector<uint32_t> way;
  for (uint32_t first = 0; first < room.size(); ++first) {
    uint32_t state = first;
    way.clear();
    while (room[state] == kNotYet) {
      const PlainStep step = plain_step(text, state, plain);
      if (!step.known || !step.any || step.target == state) {
        room[state] = !step.known ? kUnknownRoom : step.any ? kUnbounded : 0;
        break;
      }
      room[state] = kOpen;
      way.push_back(state);
      state = step.target;
    }
    int32_t behind = room[state] == kOpen ? kUnknownRoom : room[state];
    for (size_t i = way.size(); i-- > 0;) {
      if (behind != kUnknownRoom && behind != kUnbounded) ++behind;
      room[way[i]] = behind;
    }
  }
  return room;
}

void split_utf8(NetworkBuilder& builder, uint32_t from, char32_t low, char32_t high, uint32_t to) {
  std::string first, last;
  append_code_point(low, first);
  append_code_point(high, last);
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    const uint32_t next = builder.add_state();
    builder.add_edge(from, static_cast<unsigned char>(first[i]), static_cast<unsigned char>(last[i]), next);
    from = next;
  }
  builder.add_edge(from, static_cast<unsigned char>(first.back()), static_cast<unsigned char>(last.back()), to);
}

// Code points of one length of UTF-8. Cut until the ranges of all bytes are independent of each other.
void cut_utf8(NetworkBuilder& builder, uint32_t from, char32_t low, char32_t high, int bytes, uint32_t to) {
  for (int i = 1; i < bytes; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      cut_utf8(builder, from, low, low | mask, bytes, to);
      return cut_utf8(builder, from, (low | mask) + 1, high, bytes, to);
    }
    if ((high & mask) != mask) {
      cut_utf8(builder, from, low, (high & ~mask) - 1, bytes, to);
      return cut_utf8(builder, from, high & ~mask, high, bytes, to);
    }
  }
  split_utf8(builder, from, low, high, to);
}

}  // namespace

void add_utf8(NetworkBuilder& builder, uint32_t from, char32_t low, char32_t high, uint32_t to) {
  struct Span {
    char32_t low, high;
    int bytes;
  };
  constexpr Span kSpans[] = {
      {0, 0x7F, 1}, {0x80, 0x7FF, 2}, {0x800, 0xD7FF, 3}, {0xE000, 0xFFFF, 3}, {0x10000, kLastCodePoint, 4}};
  for (const Span& span : kSpans) {
    const char32_t first = std::max(low, span.low), last = std::min(high, span.high);
    if (first <= last) cut_utf8(builder, from, first, last, span.bytes, to);
  }
}

std::vector<uint32_t> TextWriter::write(const CharAutomaton& text, uint32_t from, TextForm form) {
  const PlainText kind = form == TextForm::kRaw ? PlainText::kRaw : PlainText::kJson;
  const std::vector<int32_t> rooms = plain_rooms(text, kind);
  std::vector<uint32_t> state{from};
  for (size_t i = 1; i < text.states().size(); ++i) state.push_back(builder_->add_state());
  std::vector<uint32_t> ends;
  const CharSet direct = ascii() & must_escape(form).complement();
  for (uint32_t i = 0; i < text.states().size(); ++i) {
    const auto& here = text.states()[i];
    for (const auto& edge : here.edges) {
      const CharSet& set = text.set(edge.set);
      const CharSet bytes = set & direct;
      for (const auto& range : bytes.ranges()) {
        builder_->add_edge(state[i], static_cast<uint16_t>(range.low), static_cast<uint16_t>(range.high),
                           state[edge.target]);
      }
      const uint32_t rule = long_form_rule(set, form);
      if (rule != 0) builder_->add_call(state[i], rule, state[edge.target]);
    }
    for (const uint32_t target : here.jumps) builder_->add_jump(state[i], state[target]);
    if (here.final) ends.push_back(state[i]);
    if (rooms[i] != kUnknownRoom) builder_->set_plain(state[i], kind, rooms[i]);
  }
  return ends;
}

uint32_t TextWriter::long_form_rule(const CharSet& set, TextForm form) {
  const CharSet escaped = set & must_escape(form);
  const CharSet beyond = set & (ascii() | escaped).complement();
  if (beyond.empty() && escaped.empty()) return 0;
  const bool all = form != TextForm::kRaw && set == CharSet::all();
  const auto [known, added] = rules_.try_emplace({all ? set : beyond | escaped, form}, 0);
  if (!added) return known->second;
  const uint32_t rule = builder_->add_rule(true);
  known->second = rule;
  const uint32_t from = builder_->start_of(rule);
  const uint32_t to = builder_->add_state();
  builder_->set_final(to);
  for (const auto& range : beyond.ranges()) add_utf8(*builder_, from, range.low, range.high, to);
  if (all) {
    add_all_escapes(from, to);
  } else {
    add_escapes(from, escaped, to);
  }
  return rule;
}

void TextWriter::add_escapes(uint32_t from, const CharSet& set, uint32_t to) {
  constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                              {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  for (const auto& [c, letter] : kShort) {
    if (set.contains(static_cast<unsigned char>(c))) builder_->add_text(from, std::string("\\") + letter, to);
  }
  if (set.contains(kBar)) {
    builder_->add_text(from, "\\uff5c", to);
    builder_->add_text(from, "\\uFF5C", to);
  }
  constexpr std::string_view kHex = "0123456789abcdef", kUpperHex = "0123456789ABCDEF";
  for (unsigned c = 0; c < 0x20; ++c) {
    if (!set.contains(c)) continue;
    const std::string begin = std::string("\\u00") + kHex[c / 16];
    builder_->add_text(from, begin + kHex[c % 16], to);
    if (c % 16 >= 10) builder_->add_text(from, begin + kUpperHex[c % 16], to);
  }
}

// Every escape of JSON that means a character; a high surrogate comes with its low one.
void TextWriter::add_all_escapes(uint32_t from, uint32_t to) {
  const auto hex = [this](uint32_t at, std::string_view letters, uint32_t next) {
    for (const char c : letters) builder_->add_edge(at, static_cast<unsigned char>(c), next);
  };
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  const uint32_t escape = builder_->add_text(from, "\\");
  hex(escape, "\"\\/bfnrt", to);
  const uint32_t unit = builder_->add_text(escape, "u");
  const uint32_t last = builder_->add_state(), third = builder_->add_state(), second = builder_->add_state();
  hex(last, kHex, to);
  hex(third, kHex, last);
  hex(second, kHex, third);
  hex(unit, "0123456789abcefABCEF", second);
  const uint32_t d = builder_->add_state(), high_third = builder_->add_state(), high_last = builder_->add_state();
  hex(unit, "dD", d);
  hex(d, "01234567", third);
  hex(d, "89abAB", high_third);
  hex(high_third, kHex, high_last);
  const uint32_t high = builder_->add_state();
  hex(high_last, kHex, high);
  const uint32_t low = builder_->add_text(high, "\\u");
  const uint32_t low_d = builder_->add_state();
  hex(low, "dD", low_d);
  hex(low_d, "cdefCDEF", third);
}

}  // namespace folio
