// A grammar as a recursive transition network: finite automata over bytes, the rules, that call each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace folio {

// Bytes, and one symbol more for the marker token of call blocks, which no bytes spell.
constexpr uint16_t kMarkerSymbol = 256;
constexpr size_t kSymbols = 257;

// Texts of which a state takes any, up to a length: what lets the mask of most tokens be looked up.
enum class PlainText : uint8_t {
  kNone,
  kRaw,   // all characters but '<' and U+FF5C, with which the markup of calls begins
  kJson,  // those but '"', '\', U+FF5C and what is below U+0020: they stand for themselves in a JSON string
};
constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();

struct GrammarLimits {
  size_t states = 400'000;  // and so many calls and jumps each, and four times as many edges
  int32_t depth = 256;      // rules that are open at a time, leaves not counted: what bounds the nesting of an answer
};

// The finished network. States and rules are numbered; a rule is known by its number.
class RuleNetwork {
 public:
  struct Edge {
    uint16_t low, high;  // symbols low..high
    uint32_t target;
  };
  struct Call {
    uint32_t rule;
    uint32_t target;  // where the caller goes on when the rule is done
  };
  // Exact: of the texts that are all plain characters, `state` takes those of up to `room` characters and no others.
  struct Plain {
    PlainText kind = PlainText::kNone;
    int32_t room = 0;
  };

  size_t num_states() const { return final_.size(); }
  std::span<const Edge> edges(uint32_t state) const { return range(edges_, edge_begin_, state); }
  std::span<const Call> calls(uint32_t state) const { return range(calls_, call_begin_, state); }
  std::span<const uint32_t> jumps(uint32_t state) const { return range(jumps_, jump_begin_, state); }
  bool is_final(uint32_t state) const { return final_[state] != 0; }
  Plain plain(uint32_t state) const { return plain_[state]; }
  // Least number of rules, this one and leaves not counted, that are open at a time on some way from `state` to the end
  // of its rule.
  int32_t height(uint32_t state) const { return height_[state]; }
  uint32_t rule_start(uint32_t rule) const { return rule_start_[rule]; }
  bool is_leaf(uint32_t rule) const { return leaf_[rule] != 0; }
  uint32_t root_start() const { return rule_start_[0]; }

  // Symbols with the same class are in the same edges everywhere.
  uint16_t symbol_class(uint16_t symbol) const { return symbol_class_[symbol]; }
  uint16_t num_classes() const { return static_cast<uint16_t>(class_symbol_.size()); }
  uint16_t symbol_of_class(uint16_t c) const { return class_symbol_[c]; }
  size_t size_bytes() const;

 private:
  friend class NetworkBuilder;
  template <typename T>
  static std::span<const T> range(const std::vector<T>& items, const std::vector<uint32_t>& begin, uint32_t state) {
    return std::span(items).subspan(begin[state], begin[state + 1] - begin[state]);
  }

  std::vector<Edge> edges_;
  std::vector<Call> calls_;
  std::vector<uint32_t> jumps_;
  std::vector<uint32_t> edge_begin_, call_begin_, jump_begin_;  // num_states() + 1
  std::vector<uint8_t> final_;
  std::vector<Plain> plain_;
  std::vector<int32_t> height_;
  std::vector<uint32_t> rule_start_;
  std::vector<uint8_t> leaf_;
  std::array<uint16_t, kSymbols> symbol_class_{};
  std::vector<uint16_t> class_symbol_;
};

// Puts a network together. Rule 0 is the root. Every rule but the root must begin with a symbol on all its ways, and so
// take at least one: that is what makes recursion harmless.
class NetworkBuilder {
 public:
  explicit NetworkBuilder(const GrammarLimits& limits = {}) : limits_(limits) { add_rule(); }

  // A rule with its first state. Its final states are its own. A leaf calls no other rule.
  uint32_t add_rule(bool leaf = false);
  uint32_t start_of(uint32_t rule) const { return rule_start_[rule]; }
  uint32_t root() const { return 0; }

  // Each throws Error(kInvalidArgument) when the network grows beyond the limits.
  uint32_t add_state();
  void add_edge(uint32_t from, uint16_t low, uint16_t high, uint32_t to);
  void add_edge(uint32_t from, unsigned char byte, uint32_t to) { add_edge(from, byte, byte, to); }
  void add_call(uint32_t from, uint32_t rule, uint32_t to);
  // `to` is where `from` is, without a symbol.
  void add_jump(uint32_t from, uint32_t to);
  void set_final(uint32_t state);
  void set_plain(uint32_t state, PlainText kind, int32_t room);

  // The state behind `text`, read from `from`.
  uint32_t add_text(uint32_t from, std::string_view text);
  // The same, ending in `to`; text is not empty.
  void add_text(uint32_t from, std::string_view text, uint32_t to);

  // The network, without ways that never end. Throws Error(kInvalidArgument) when none from the root does, or all need
  // more open rules than the limit. The builder is used up.
  RuleNetwork build();

 private:
  struct From {
    uint32_t from;
  };
  struct EdgeFrom : From, RuleNetwork::Edge {};
  struct CallFrom : From, RuleNetwork::Call {};
  struct JumpFrom : From {
    uint32_t target;
  };

  void count(size_t size) const;
  std::vector<int32_t> heights() const;
  void check_rules(const RuleNetwork& network) const;
  void classify_symbols(RuleNetwork& network) const;

  GrammarLimits limits_;
  std::vector<EdgeFrom> edges_;
  std::vector<CallFrom> calls_;
  std::vector<JumpFrom> jumps_;
  std::vector<uint8_t> final_;
  std::vector<RuleNetwork::Plain> plain_;
  std::vector<uint32_t> rule_start_;
  std::vector<uint8_t> leaf_;
};

}  // namespace folio
