// Sets of characters, and finite automata over them: what a string may be, before it is written down in bytes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace folio {

constexpr char32_t kLastCodePoint = 0x10FFFF;

// A set of code points: disjoint ranges, ascending, none touching the next.
class CharSet {
 public:
  struct Range {
    char32_t low, high;
    auto operator<=>(const Range&) const = default;
  };

  CharSet() = default;
  explicit CharSet(std::vector<Range> ranges);  // in any order, may overlap
  static CharSet all() { return CharSet({{0, kLastCodePoint}}); }
  static CharSet of(char32_t c) { return CharSet({{c, c}}); }

  std::span<const Range> ranges() const& { return ranges_; }
  std::span<const Range> ranges() && = delete;
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  CharSet complement() const;
  friend CharSet operator&(const CharSet& a, const CharSet& b);
  friend CharSet operator|(const CharSet& a, const CharSet& b);
  auto operator<=>(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

// While one lives, bounds what all automata of its thread may be made of together, so that a request with many large
// patterns cannot keep a thread busy. Beyond, functions that make automata throw Error(kInvalidArgument).
class AutomatonMeter {
 public:
  static constexpr int64_t kMaxWork = 6'000'000;  // states, edges, and pairs of edges looked at

  AutomatonMeter();
  ~AutomatonMeter();
  AutomatonMeter(const AutomatonMeter&) = delete;
  AutomatonMeter& operator=(const AutomatonMeter&) = delete;

  // Counts one; nothing without a meter.
  static void count();

 private:
  int64_t left_ = kMaxWork;
  AutomatonMeter* outer_;
};

// A nondeterministic automaton over characters with jumps. Functions that make one throw Error(kInvalidArgument) when
// it gets too large.
class CharAutomaton {
 public:
  static constexpr size_t kMaxStates = 200'000;
  static constexpr size_t kMaxEdges = 800'000;

  struct Edge {
    uint32_t set;  // index into sets()
    uint32_t target;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<uint32_t> jumps;
    bool final = false;
  };

  // One state, the start, which takes nothing.
  CharAutomaton() { add_state(); }

  static CharAutomaton any_text();
  static CharAutomaton one_of(std::span<const std::string> texts);
  // Every text but these.
  static CharAutomaton none_of(std::span<const std::string> texts);
  // Every text without `part`, which is not empty.
  static CharAutomaton without(std::u32string_view part);
  // `least` to `most` characters; most < 0: no upper bound.
  static CharAutomaton length(int64_t least, int64_t most);

  uint32_t start() const { return 0; }
  const std::vector<State>& states() const { return states_; }
  const CharSet& set(uint32_t index) const { return sets_[index]; }

  uint32_t add_state(bool final = false);
  void add_edge(uint32_t from, const CharSet& set, uint32_t to);
  void add_jump(uint32_t from, uint32_t to);
  void set_final(uint32_t state) { states_[state].final = true; }
  // The state behind `text` (UTF-8), read from `from`.
  uint32_t add_text(uint32_t from, std::string_view text);

  // Nothing is taken.
  bool empty() const;
  bool accepts(std::string_view text) const;
  // Without states that do not lie between the start and a final one.
  CharAutomaton trimmed() const;

 private:
  std::vector<State> states_;
  std::vector<CharSet> sets_;
  std::map<CharSet, uint32_t> set_index_;
  size_t num_edges_ = 0;
};

// What both take.
CharAutomaton intersection(const CharAutomaton& a, const CharAutomaton& b);
// What one of them takes.
CharAutomaton either(const CharAutomaton& a, const CharAutomaton& b);
// `text`, and behind it what `a` takes.
CharAutomaton prefixed(std::string_view text, const CharAutomaton& a);

// Code points of well-formed UTF-8.
std::u32string code_points(std::string_view text);

}  // namespace folio
