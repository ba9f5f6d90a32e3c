#include "protocol/grammar_regex.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

constexpr size_t kMaxPattern = 16 * 1024;  // characters
constexpr int kMaxGroups = 100;            // inside each other
constexpr int64_t kMaxRepeat = 100'000;

struct Node {
  enum class Kind : uint8_t { kSet, kSequence, kAlternatives, kRepeat, kBegin, kEnd };
  Kind kind = Kind::kSequence;
  CharSet set = {};
  std::vector<Node> children = {};
  int64_t least = 0, most = 0;  // kRepeat; most < 0: any number
};

CharSet digits() { return CharSet({{U'0', U'9'}}); }
CharSet word_characters() { return CharSet({{U'0', U'9'}, {U'A', U'Z'}, {U'a', U'z'}, {U'_', U'_'}}); }
CharSet white_space() {
  return CharSet({{9, 13},
                  {32, 32},
                  {0xA0, 0xA0},
                  {0x1680, 0x1680},
                  {0x2000, 0x200A},
                  {0x2028, 0x2029},
                  {0x202F, 0x202F},
                  {0x205F, 0x205F},
                  {0x3000, 0x3000},
                  {0xFEFF, 0xFEFF}});
}
CharSet line_ends() { return CharSet({{U'\n', U'\n'}, {U'\r', U'\r'}, {0x2028, 0x2029}}); }

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(code_points(pattern)) {}

  Node parse() {
    Node node = alternatives();
    if (at_ < text_.size()) refuse("there is no '(' to this ')'");
    return node;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::kInvalidArgument, "the pattern at character ", at_, ": ", parts...);
  }
  bool more() const { return at_ < text_.size(); }
  char32_t peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : U'\0'; }
  bool take(std::u32string_view part) {
    if (!std::u32string_view(text_).substr(at_).starts_with(part)) return false;
    at_ += part.size();
    return true;
  }
  char32_t get() {
    if (!more()) refuse("it ends too early");
    return text_[at_++];
  }

  Node alternatives() {
    if (++groups_ > kMaxGroups) refuse("more than ", kMaxGroups, " groups inside each other");
    Node node{.kind = Node::Kind::kAlternatives};
    do {
      node.children.push_back(sequence());
    } while (take(U"|"));
    --groups_;
    if (node.children.size() > 1) return node;
    Node only = std::move(node.children[0]);
    return only;
  }

  Node sequence() {
    Node node{.kind = Node::Kind::kSequence};
    while (more() && peek() != U'|' && peek() != U')') node.children.push_back(repeated(atom()));
    return node;
  }

  Node repeated(Node node) {
    while (more()) {
      int64_t least = 0, most = -1;
      const size_t before = at_;
      if (take(U"*")) {
      } else if (take(U"+")) {
        least = 1;
      } else if (take(U"?")) {
        most = 1;
      } else if (peek() != U'{' || !counts(least, most)) {
        at_ = before;
        break;
      }
      if (node.kind == Node::Kind::kBegin || node.kind == Node::Kind::kEnd) refuse("an anchor cannot be repeated");
      if (take(U"+")) refuse("possessive repetition is not supported");
      take(U"?");
      Node outer{.kind = Node::Kind::kRepeat, .least = least, .most = most};
      outer.children.push_back(std::move(node));
      node = std::move(outer);
      if (peek() == U'*' || peek() == U'+' || peek() == U'?') refuse("there is nothing to repeat");
    }
    return node;
  }

  // {m}, {m,} or {m,n}; false when it is none, and so plain text.
  bool counts(int64_t& least, int64_t& most) {
    take(U"{");
    const auto low = number();
    if (!low) return false;
    least = most = *low;
    if (take(U",")) most = number().value_or(-1);
    if (!take(U"}")) return false;
    if (most >= 0 && most < least) refuse("the repetition {", least, ",", most, "} has its bounds the wrong way round");
    return true;
  }

  std::optional<int64_t> number() {
    if (peek() < U'0' || peek() > U'9') return std::nullopt;
    int64_t value = 0;
    while (peek() >= U'0' && peek() <= U'9') {
      value = value * 10 + static_cast<int64_t>(get() - U'0');
      if (value > kMaxRepeat) refuse("repetitions above ", kMaxRepeat, " are not supported");
    }
    return value;
  }

  Node atom() {
    switch (const char32_t c = peek()) {
      case U'(':
        return group();
      case U'[':
        return set(char_class());
      case U'.':
        ++at_;
        return set(line_ends().complement());
      case U'^':
      case U'$':
        ++at_;
        return {.kind = c == U'^' ? Node::Kind::kBegin : Node::Kind::kEnd};
      case U'\\':
        return set(escape(false));
      case U'*':
      case U'+':
      case U'?':
        refuse("there is nothing to repeat");
      default:
        ++at_;
        return set(CharSet::of(c));
    }
  }

  static Node set(CharSet chars) { return {.kind = Node::Kind::kSet, .set = std::move(chars)}; }

  Node group() {
    take(U"(");
    if (take(U"?")) {
      if (take(U"<=") || take(U"<!") || take(U"=") || take(U"!")) refuse("lookaround is not supported");
      if (take(U"P<") || take(U"<")) {
        while (get() != U'>') {
        }
      } else if (!take(U":")) {
        refuse("this kind of group is not supported; use (...) or (?:...)");
      }
    }
    Node node = alternatives();
    if (!take(U")")) refuse("a group is not closed");
    return node;
  }

  CharSet char_class() {
    take(U"[");
    const bool inverted = take(U"^");
    CharSet chars;
    while (!take(U"]")) {
      const CharSet low = class_item();
      if (peek() != U'-' || peek(1) == U']') {
        chars = chars | low;
        continue;
      }
      take(U"-");
      const CharSet high = class_item();
      const auto single = [](const CharSet& item) {
        return item.ranges().size() == 1 && item.ranges()[0].low == item.ranges()[0].high;
      };
      if (!single(low) || !single(high) || low.ranges()[0].low > high.ranges()[0].low) {
        refuse("a range of a character class has no order");
      }
      chars = chars | CharSet({{low.ranges()[0].low, high.ranges()[0].low}});
    }
    return inverted ? chars.complement() : chars;
  }

  CharSet class_item() {
    if (!more()) refuse("a character class is not closed");
    if (peek() == U'\\') return escape(true);
    return CharSet::of(get());
  }

  CharSet escape(bool in_class) {
    take(U"\\");
    const char32_t c = get();
    switch (c) {
      case U'd':
        return digits();
      case U'D':
        return digits().complement();
      case U'w':
        return word_characters();
      case U'W':
        return word_characters().complement();
      case U's':
        return white_space();
      case U'S':
        return white_space().complement();
      case U'n':
        return CharSet::of(U'\n');
      case U'r':
        return CharSet::of(U'\r');
      case U't':
        return CharSet::of(U'\t');
      case U'f':
        return CharSet::of(U'\f');
      case U'v':
        return CharSet::of(U'\v');
      case U'0':
        return CharSet::of(0);
      case U'x':
        return CharSet::of(hexadecimal(2));
      case U'u':
        return CharSet::of(code_unit());
      case U'c':
        return CharSet::of(get() & 0x1F);
      case U'b':
        if (in_class) return CharSet::of(U'\b');
        [[fallthrough]];
      case U'B':
        refuse("word borders (\\b, \\B) are not supported");
      case U'p':
      case U'P':
        refuse("Unicode properties (\\p) are not supported; list the characters in a class");
      case U'k':
        refuse("references to groups are not supported");
      default:
        break;
    }
    if (c >= U'1' && c <= U'9') refuse("references to groups are not supported");
    if (word_characters().contains(c) && c != U'_') refuse("the escape \\", static_cast<char>(c), " is not known");
    return CharSet::of(c);
  }

  char32_t hexadecimal(int count) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const char32_t c = get();
      const bool digit = c >= U'0' && c <= U'9';
      const char32_t lower = c | 0x20;
      if (!digit && (lower < U'a' || lower > U'f')) refuse("an escape lacks hexadecimal digits");
      value = value * 16 + (digit ? c - U'0' : lower - U'a' + 10);
    }
    return value;
  }

  // \uXXXX, a pair of them for a character beyond U+FFFF, or \u{X...}.
  char32_t code_unit() {
    if (take(U"{")) {
      char32_t value = 0;
      while (!take(U"}")) {
        value = value * 16 + hexadecimal(1);
        if (value > kLastCodePoint) refuse("there is no such character");
      }
      return value;
    }
    const char32_t unit = hexadecimal(4);
    if (unit >= 0xD800 && unit < 0xDC00 && peek() == U'\\' && peek(1) == U'u') {
      at_ += 2;
      const char32_t low = hexadecimal(4);
      if (low < 0xDC00 || low > 0xDFFF) refuse("a surrogate stands alone");
      return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    return unit;
  }

  std::u32string text_;
  size_t at_ = 0;
  int groups_ = 0;
};

// Takes `kind` away from one end of every alternative; puts `instead` where there is none.
void resolve_anchor(Node& node, Node::Kind kind, const Node* instead) {
  if (node.kind == Node::Kind::kAlternatives) {
    for (Node& child : node.children) resolve_anchor(child, kind, instead);
    return;
  }
  if (node.kind != Node::Kind::kSequence) {
    Node sequence{.kind = Node::Kind::kSequence};
    sequence.children.push_back(std::move(node));
    node = std::move(sequence);
  }
  auto& children = node.children;
  const bool front = kind == Node::Kind::kBegin;
  const auto edge = [&]() -> Node& { return front ? children.front() : children.back(); };
  if (!children.empty()) {
    const bool nested = edge().kind == Node::Kind::kSequence || edge().kind == Node::Kind::kAlternatives;
    if (nested) return resolve_anchor(edge(), kind, instead);
  }
  bool anchored = false;
  while (!children.empty() && edge().kind == kind) {
    children.erase(front ? children.begin() : children.end() - 1);
    anchored = true;
  }
  if (!anchored && instead != nullptr) children.insert(front ? children.begin() : children.end(), *instead);
}

// Appends what `node` takes behind `from`; returns where it ends.
uint32_t append(CharAutomaton& automaton, const Node& node, uint32_t from) {
  switch (node.kind) {
    case Node::Kind::kSet: {
      const uint32_t to = automaton.add_state();
      automaton.add_edge(from, node.set, to);
      return to;
    }
    case Node::Kind::kSequence:
      for (const Node& child : node.children) from = append(automaton, child, from);
      return from;
    case Node::Kind::kAlternatives: {
      const uint32_t to = automaton.add_state();
      for (const Node& child : node.children) automaton.add_jump(append(automaton, child, from), to);
      return to;
    }
    case Node::Kind::kRepeat: {
      const Node& child = node.children[0];
      for (int64_t i = 0; i < node.least; ++i) from = append(automaton, child, from);
      if (node.most < 0) {
        // A state of its own, so that a loop back never meets what else leaves `from`.
        const uint32_t loop = automaton.add_state();
        automaton.add_jump(from, loop);
        automaton.add_jump(append(automaton, child, loop), loop);
        return loop;
      }
      const uint32_t to = automaton.add_state();
      for (int64_t i = node.least; i < node.most; ++i) {
        automaton.add_jump(from, to);
        from = append(automaton, child, from);
      }
      automaton.add_jump(from, to);
      return to;
    }
    case Node::Kind::kBegin:
    case Node::Kind::kEnd:
      break;
  }
  fail(ErrorCode::kInvalidArgument, "the pattern: ^ and $ are supported only at the ends of it or of its alternatives");
}

}  // namespace

CharAutomaton compile_regex(std::string_view pattern, RegexMatch match) {
  if (find_invalid_utf8(pattern) < pattern.size()) fail(ErrorCode::kInvalidArgument, "the pattern is not valid UTF-8");
  if (pattern.size() > kMaxPattern) {
    fail(ErrorCode::kInvalidArgument, "the pattern is longer than ", kMaxPattern, " bytes");
  }
  Node node = Parser(pattern).parse();
  Node anything{.kind = Node::Kind::kRepeat, .most = -1};
  anything.children.push_back({.kind = Node::Kind::kSet, .set = CharSet::all()});
  const Node* instead = match == RegexMatch::kAnywhere ? &anything : nullptr;
  resolve_anchor(node, Node::Kind::kBegin, instead);
  resolve_anchor(node, Node::Kind::kEnd, instead);
  CharAutomaton automaton;
  automaton.set_final(append(automaton, node, automaton.start()));
  return automaton.trimmed();
}

}  // namespace folio
