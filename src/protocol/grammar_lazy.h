// The deterministic automaton of a rule network, made as far as it is walked.
//
// A state is everything that may be going on behind a text: pairs of a place in a rule and a stack of callers. Stacks
// are shared: a stack node is a set of (place to return to, node of that caller), equal sets are one node, and a state
// has each place once, with the union of its stacks. So a state is finite, no ambiguity can multiply it, and equal
// situations are equal states whatever text led there, which is what makes them worth keeping, with their masks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "protocol/grammar_automaton.h"

namespace folio {

// Not thread-safe. `network` must outlive it.
class LazyAutomaton {
 public:
  // A place in a rule under a stack, or an entry of a stack node: a place to return to under the caller's stack.
  struct Item {
    uint32_t place;
    uint32_t stack;
    auto operator<=>(const Item&) const = default;
  };
  static constexpr uint32_t kDead = 0;

  explicit LazyAutomaton(const RuleNetwork& network, int32_t max_depth);

  uint32_t start() const { return start_; }
  // The state behind one more symbol, kDead when it may not come.
  uint32_t next(uint32_t state, uint16_t symbol) { return next_of_class(state, network_->symbol_class(symbol)); }
  uint32_t next_of_class(uint32_t state, uint16_t symbol_class) {
    const uint32_t known = next_[size_t{state} * classes_ + symbol_class];
    return known != kUnknown ? known : make_next(state, symbol_class);
  }
  uint32_t next(uint32_t state, std::string_view bytes);

  // The text may end here.
  bool accepting(uint32_t state) const { return states_[state].accepting; }
  // Something may follow. A state that is neither open nor accepting is dead.
  bool open(uint32_t state) const { return states_[state].end > states_[state].begin; }
  // What is going on, by place; places that a call entered without a symbol are not listed.
  std::span<const Item> items(uint32_t state) const {
    return {items_.data() + states_[state].begin, items_.data() + states_[state].end};
  }
  // The state that is going on with `items`, a part of those of another one, alone.
  uint32_t state_of(std::span<const Item> items) { return intern(items, false); }

  const RuleNetwork& network() const { return *network_; }
  size_t size_bytes() const;
  // Forgets the states that were made since mark(), which nobody may hold any more.
  struct Mark {
    size_t states, items, stacks, entries;
  };
  Mark mark() const { return {states_.size(), items_.size(), stacks_.size(), entries_.size()}; }
  void forget_since(const Mark& mark);

 private:
  static constexpr uint32_t kUnknown = 0xFFFFFFFF;
  static constexpr uint32_t kRootStack = 0;  // of the root rule: nobody to return to

  static constexpr size_t kNotYet = SIZE_MAX;
  struct State {
    size_t begin, end;  // in items_
    bool accepting;
    size_t called_begin = kNotYet, called_end = 0;  // in items_: first places of the rules that the items call
  };
  struct Stack {
    size_t begin, end;  // in entries_
    int32_t depth;      // callers above each other, the longest way
  };

  uint32_t make_next(uint32_t state, uint16_t symbol_class);
  // Where `symbol` leads to from items [begin, end), appended to reached_.
  void advance(size_t begin, size_t end, uint16_t symbol);
  void reach(uint32_t place, uint32_t stack);
  // Finds the rules that a state calls.
  void find_called(uint32_t state);
  // Follows jumps and returns from reached_, and makes the state of what is going on there.
  uint32_t settle();
  bool fits(uint32_t place, uint32_t stack) const {
    return stacks_[stack].depth + network_->height(place) <= max_depth_;
  }
  uint32_t intern(std::span<const Item> items, bool accepting);
  // `entries`: each place once, ascending.
  uint32_t intern_stack(std::span<const Item> entries);
  // Leaves each place once, with the union of its stacks, ascending.
  void unite(std::vector<Item>& items);
  uint32_t union_of(std::vector<uint32_t> stacks);

  const RuleNetwork* network_;
  int32_t max_depth_;
  size_t classes_;
  uint32_t start_;

  std::vector<State> states_;
  std::vector<Item> items_;     // of all states
  std::vector<uint32_t> next_;  // [state][symbol class]
  std::unordered_multimap<uint64_t, uint32_t> state_by_hash_;
  std::vector<Stack> stacks_;
  std::vector<Item> entries_;  // of all stacks
  std::unordered_multimap<uint64_t, uint32_t> stack_by_hash_;
  std::map<std::vector<uint32_t>, uint32_t> unions_;

  // Scratch of one step.
  std::vector<Item> reached_;
  std::vector<uint32_t> reached_at_;   // [place] the step that reached it last,
  std::vector<uint32_t> first_stack_;  // [place] and under which stack first
  uint32_t step_ = 0;
};

}  // namespace folio
