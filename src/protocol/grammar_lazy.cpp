#include "protocol/grammar_lazy.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace folio {
namespace {

using Item = LazyAutomaton::Item;

uint64_t hash_of(std::span<const Item> items, uint64_t seed) {
  uint64_t hash = mix64(seed + items.size());
  for (const auto [place, stack] : items) hash = mix64(hash ^ (uint64_t{place} << 32 | stack));
  return hash;
}

// The id under `hash` whose items are `items` by `same`, or none.
template <typename Same>
const uint32_t* find_id(const std::unordered_multimap<uint64_t, uint32_t>& ids, uint64_t hash, const Same& same) {
  const auto [begin, end] = ids.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    if (same(at->second)) return &at->second;
  }
  return nullptr;
}

void erase_from(std::unordered_multimap<uint64_t, uint32_t>& ids, size_t first) {
  std::erase_if(ids, [first](const auto& entry) { return entry.second >= first; });
}

}  // namespace

LazyAutomaton::LazyAutomaton(const RuleNetwork& network, int32_t max_depth)
    : network_(&network),
      max_depth_(max_depth),
      classes_(network.num_classes()),
      reached_at_(network.num_states(), 0),
      first_stack_(network.num_states(), 0) {
  states_.push_back({.begin = 0, .end = 0, .accepting = false, .called_begin = 0});
  next_.assign(classes_, kDead);
  stacks_.push_back({.begin = 0, .end = 0, .depth = 0});
  ++step_;
  reach(network.root_start(), kRootStack);
  start_ = settle();
}

uint32_t LazyAutomaton::next(uint32_t state, std::string_view bytes) {
  for (const char byte : bytes) {
    if (state == kDead) break;
    state = next(state, static_cast<unsigned char>(byte));
  }
  return state;
}

uint32_t LazyAutomaton::make_next(uint32_t state, uint16_t symbol_class) {
  if (states_[state].called_begin == kNotYet) find_called(state);
  const uint16_t symbol = network_->symbol_of_class(symbol_class);
  const State from = states_[state];
  ++step_;
  advance(from.begin, from.end, symbol);
  advance(from.called_begin, from.called_end, symbol);
  const uint32_t to = settle();
  next_[size_t{state} * classes_ + symbol_class] = to;
  return to;
}

void LazyAutomaton::advance(size_t begin, size_t end, uint16_t symbol) {
  for (size_t i = begin; i < end; ++i) {
    const auto [place, stack] = items_[i];
    for (const auto& edge : network_->edges(place)) {
      if (edge.low <= symbol && symbol <= edge.high) reach(edge.target, stack);
    }
  }
}

// Each pair once a step. Nearly always a place has one stack; the others are looked for one by one.
void LazyAutomaton::reach(uint32_t place, uint32_t stack) {
  if (!fits(place, stack)) return;
  if (std::exchange(reached_at_[place], step_) != step_) {
    first_stack_[place] = stack;
  } else if (first_stack_[place] == stack ||
             std::find(reached_.begin(), reached_.end(), Item{place, stack}) != reached_.end()) {
    return;
  }
  reached_.push_back({place, stack});
}

uint32_t LazyAutomaton::settle() {
  bool accepting = false;
  for (size_t i = 0; i < reached_.size(); ++i) {
    const auto [place, stack] = reached_[i];
    for (const uint32_t to : network_->jumps(place)) reach(to, stack);
    if (!network_->is_final(place)) continue;
    if (stack == kRootStack) accepting = true;
    for (size_t e = stacks_[stack].begin; e < stacks_[stack].end; ++e) reach(entries_[e].place, entries_[e].stack);
  }
  std::erase_if(reached_, [this](const Item& item) {
    return network_->edges(item.place).empty() && network_->calls(item.place).empty();
  });
  unite(reached_);
  const uint32_t state = intern(reached_, accepting);
  reached_.clear();
  return state;
}

// All who call a rule here share one stack node, so the rule is entered once.
void LazyAutomaton::find_called(uint32_t state) {
  std::map<uint32_t, std::vector<Item>> callers;  // by rule
  for (size_t i = states_[state].begin; i < states_[state].end; ++i) {
    const auto [place, stack] = items_[i];
    for (const auto& call : network_->calls(place)) {
      const bool room = network_->is_leaf(call.rule) ||
                        stacks_[stack].depth + 1 + network_->height(network_->rule_start(call.rule)) <= max_depth_;
      if (room && fits(call.target, stack)) callers[call.rule].push_back({call.target, stack});
    }
  }
  std::vector<Item> called;
  for (auto& [rule, entries] : callers) {
    unite(entries);
    const uint32_t stack = intern_stack(entries);
    size_t at = called.size();
    called.push_back({network_->rule_start(rule), stack});
    for (; at < called.size(); ++at) {
      for (const uint32_t to : network_->jumps(called[at].place)) {
        if (std::find(called.begin(), called.end(), Item{to, stack}) == called.end()) called.push_back({to, stack});
      }
    }
  }
  states_[state].called_begin = items_.size();
  items_.insert(items_.end(), called.begin(), called.end());
  states_[state].called_end = items_.size();
}

uint32_t LazyAutomaton::intern(std::span<const Item> items, bool accepting) {
  if (items.empty() && !accepting) return kDead;
  const uint64_t hash = hash_of(items, accepting ? 1 : 0);
  const auto same = [&](uint32_t id) {
    return states_[id].accepting == accepting && std::ranges::equal(this->items(id), items);
  };
  if (const uint32_t* known = find_id(state_by_hash_, hash, same)) return *known;
  const auto id = static_cast<uint32_t>(states_.size());
  const size_t begin = items_.size();
  items_.insert(items_.end(), items.begin(), items.end());
  states_.push_back({.begin = begin, .end = items_.size(), .accepting = accepting});
  next_.insert(next_.end(), classes_, kUnknown);
  state_by_hash_.emplace(hash, id);
  return id;
}

uint32_t LazyAutomaton::intern_stack(std::span<const Item> entries) {
  const uint64_t hash = hash_of(entries, 2);
  const auto same = [&](uint32_t id) {
    return std::ranges::equal(std::span(entries_.data() + stacks_[id].begin, entries_.data() + stacks_[id].end),
                              entries);
  };
  if (const uint32_t* known = find_id(stack_by_hash_, hash, same)) return *known;
  int32_t depth = 0;
  for (const Item& entry : entries) depth = std::max(depth, stacks_[entry.stack].depth + 1);
  const auto id = static_cast<uint32_t>(stacks_.size());
  const size_t begin = entries_.size();
  entries_.insert(entries_.end(), entries.begin(), entries.end());
  stacks_.push_back({.begin = begin, .end = entries_.size(), .depth = depth});
  stack_by_hash_.emplace(hash, id);
  return id;
}

void LazyAutomaton::unite(std::vector<Item>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  size_t kept = 0;
  for (size_t i = 0; i < items.size();) {
    const uint32_t place = items[i].place;
    std::vector<uint32_t> stacks;
    for (; i < items.size() && items[i].place == place; ++i) stacks.push_back(items[i].stack);
    items[kept++] = {place, stacks.size() == 1 ? stacks[0] : union_of(std::move(stacks))};
  }
  items.resize(kept);
}

uint32_t LazyAutomaton::union_of(std::vector<uint32_t> stacks) {
  if (const auto known = unions_.find(stacks); known != unions_.end()) return known->second;
  std::vector<Item> entries;
  for (const uint32_t stack : stacks) {
    FOLIO_CHECK(stack != kRootStack);
    entries.insert(entries.end(), entries_.begin() + static_cast<std::ptrdiff_t>(stacks_[stack].begin),
                   entries_.begin() + static_cast<std::ptrdiff_t>(stacks_[stack].end));
  }
  unite(entries);
  const uint32_t result = intern_stack(entries);
  unions_.emplace(std::move(stacks), result);
  return result;
}

size_t LazyAutomaton::size_bytes() const {
  constexpr size_t kHashNode = 40;
  return states_.size() * (sizeof(State) + kHashNode) + stacks_.size() * (sizeof(Stack) + kHashNode) +
         (items_.size() + entries_.size()) * sizeof(Item) + next_.size() * sizeof(uint32_t) +
         unions_.size() * 2 * kHashNode + reached_at_.size() * 2 * sizeof(uint32_t);
}

void LazyAutomaton::forget_since(const Mark& mark) {
  states_.resize(mark.states);
  items_.resize(mark.items);
  stacks_.resize(mark.stacks);
  entries_.resize(mark.entries);
  next_.resize(mark.states * classes_);
  erase_from(state_by_hash_, mark.states);
  erase_from(stack_by_hash_, mark.stacks);
  unions_.clear();
  for (uint32_t& to : next_) {
    if (to != kUnknown && to >= mark.states) to = kUnknown;
  }
  for (State& state : states_) {
    if (state.called_begin != kNotYet && state.called_end > mark.items) state.called_begin = kNotYet;
  }
}

}  // namespace folio
