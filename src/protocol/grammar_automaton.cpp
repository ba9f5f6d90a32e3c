#include "protocol/grammar_automaton.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace folio {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

// Sorts `items` by where they come from, leaving out those that lead nowhere, into `out` and its index `begin`.
template <typename In, typename Out, typename Make, typename Keep>
void index_by_source(const std::vector<In>& items, size_t states, std::vector<Out>& out, std::vector<uint32_t>& begin,
                     const Make& make, const Keep& keep) {
  begin.assign(states + 1, 0);
  for (const In& item : items) begin[item.from + 1] += keep(item) ? 1 : 0;
  for (size_t i = 0; i < states; ++i) begin[i + 1] += begin[i];
  out.resize(begin[states]);
  std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
  for (const In& item : items) {
    if (keep(item)) out[next[item.from]++] = make(item);
  }
}

template <typename T>
size_t bytes_of(const std::vector<T>& items) {
  return items.capacity() * sizeof(T);
}

}  // namespace

size_t RuleNetwork::size_bytes() const {
  return bytes_of(edges_) + bytes_of(calls_) + bytes_of(jumps_) + bytes_of(edge_begin_) + bytes_of(call_begin_) +
         bytes_of(jump_begin_) + bytes_of(final_) + bytes_of(plain_) + bytes_of(height_) + bytes_of(rule_start_);
}

void NetworkBuilder::count(size_t size) const {
  if (size < limits_.states) return;
  fail(ErrorCode::kInvalidArgument, "the grammar is too large: it needs more than ", limits_.states,
       " states; use a smaller schema, shorter lengths or fewer repetitions");
}

uint32_t NetworkBuilder::add_rule(bool leaf) {
  leaf_.push_back(leaf ? 1 : 0);
  rule_start_.push_back(add_state());
  return static_cast<uint32_t>(rule_start_.size() - 1);
}

uint32_t NetworkBuilder::add_state() {
  count(final_.size());
  final_.push_back(0);
  plain_.emplace_back();
  return static_cast<uint32_t>(final_.size() - 1);
}

void NetworkBuilder::add_edge(uint32_t from, uint16_t low, uint16_t high, uint32_t to) {
  count(edges_.size() / 4);
  edges_.push_back({{from}, {low, high, to}});
}

void NetworkBuilder::add_call(uint32_t from, uint32_t rule, uint32_t to) {
  count(calls_.size());
  calls_.push_back({{from}, {rule, to}});
}

void NetworkBuilder::add_jump(uint32_t from, uint32_t to) {
  count(jumps_.size());
  jumps_.push_back({{from}, to});
}

void NetworkBuilder::set_final(uint32_t state) { final_[state] = 1; }

void NetworkBuilder::set_plain(uint32_t state, PlainText kind, int32_t room) { plain_[state] = {kind, room}; }

uint32_t NetworkBuilder::add_text(uint32_t from, std::string_view text) {
  for (const char c : text) {
    const uint32_t to = add_state();
    add_edge(from, static_cast<unsigned char>(c), to);
    from = to;
  }
  return from;
}

void NetworkBuilder::add_text(uint32_t from, std::string_view text, uint32_t to) {
  FOLIO_CHECK(!text.empty());
  from = add_text(from, text.substr(0, text.size() - 1));
  add_edge(from, static_cast<unsigned char>(text.back()), to);
}

// Shortest ways by the largest number of open rules on them: values only fall, and whoever depends on a state is looked
// at again when its value does.
std::vector<int32_t> NetworkBuilder::heights() const {
  const size_t states = final_.size();
  struct Source {
    uint32_t from;
    uint32_t call;  // index of the call, or none
  };
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<std::pair<uint32_t, Source>> sources;  // (state, who depends on it)
  for (const EdgeFrom& edge : edges_) sources.push_back({edge.target, {edge.from, kNone}});
  for (const JumpFrom& jump : jumps_) sources.push_back({jump.target, {jump.from, kNone}});
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    sources.push_back({calls_[i].target, {calls_[i].from, i}});
    sources.push_back({rule_start_[calls_[i].rule], {calls_[i].from, i}});
  }
  std::vector<uint32_t> begin(states + 1, 0);
  std::vector<Source> by_state(sources.size());
  for (const auto& [state, source] : sources) ++begin[state + 1];
  for (size_t i = 0; i < states; ++i) begin[i + 1] += begin[i];
  std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
  for (const auto& [state, source] : sources) by_state[next[state]++] = source;

  std::vector<int32_t> height(states, kNever);
  std::vector<uint32_t> pending;
  for (uint32_t state = 0; state < states; ++state) {
    if (final_[state] == 0) continue;
    height[state] = 0;
    pending.push_back(state);
  }
  // States come out by rising height when the queue is taken in rounds, so few are looked at twice.
  for (size_t at = 0; at < pending.size(); ++at) {
    const uint32_t state = pending[at];
    for (uint32_t i = begin[state]; i < begin[state + 1]; ++i) {
      const auto [from, call] = by_state[i];
      int32_t through = height[state];
      if (call != kNone) {
        const uint32_t rule = calls_[call].rule;
        const int32_t inside = height[rule_start_[rule]];
        const int32_t behind = height[calls_[call].target];
        const int32_t open = leaf_[rule] != 0 ? 0 : 1;
        through = inside == kNever || behind == kNever ? kNever : std::max(inside + open, behind);
      }
      if (through >= height[from]) continue;
      height[from] = through;
      pending.push_back(from);
    }
  }
  return height;
}

void NetworkBuilder::classify_symbols(RuleNetwork& network) const {
  std::array<bool, kSymbols + 1> cut{};
  cut[0] = cut[kMarkerSymbol] = true;
  for (const EdgeFrom& edge : edges_) cut[edge.low] = cut[edge.high + 1u] = true;
  for (uint16_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (cut[symbol]) network.class_symbol_.push_back(symbol);
    network.symbol_class_[symbol] = static_cast<uint16_t>(network.class_symbol_.size() - 1);
  }
}

// A called rule must take a symbol before it can end or call, and a leaf never calls.
void NetworkBuilder::check_rules(const RuleNetwork& network) const {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> seen(network.num_states(), kNone);
  std::vector<uint32_t> pending;
  const auto visit = [&](uint32_t state, uint32_t rule) {
    if (std::exchange(seen[state], rule) != rule) pending.push_back(state);
  };
  for (uint32_t rule = 1; rule < rule_start_.size(); ++rule) {
    pending.clear();
    visit(rule_start_[rule], rule);
    for (size_t at = 0; at < pending.size(); ++at) {
      const uint32_t state = pending[at];
      FOLIO_CHECK(!network.is_final(state) && network.calls(state).empty(), "rule ", rule);
      for (const uint32_t to : network.jumps(state)) visit(to, rule);
    }
    if (leaf_[rule] == 0) continue;
    for (size_t at = 0; at < pending.size(); ++at) {
      const uint32_t state = pending[at];
      FOLIO_CHECK(network.calls(state).empty(), "leaf ", rule);
      for (const uint32_t to : network.jumps(state)) visit(to, rule);
      for (const auto& edge : network.edges(state)) visit(edge.target, rule);
    }
  }
}

RuleNetwork NetworkBuilder::build() {
  RuleNetwork network;
  const size_t states = final_.size();
  network.height_ = heights();
  const auto& height = network.height_;
  const uint32_t root = rule_start_[0];
  if (height[root] == kNever) fail(ErrorCode::kInvalidArgument, "nothing can satisfy it");
  if (height[root] > limits_.depth) {
    fail(ErrorCode::kInvalidArgument, "nothing that is nested less than ", limits_.depth, " levels can satisfy it");
  }
  const auto ends = [&](const auto& item) { return height[item.target] != kNever; };
  index_by_source(
      edges_, states, network.edges_, network.edge_begin_, [](const EdgeFrom& e) { return RuleNetwork::Edge(e); },
      ends);
  index_by_source(
      jumps_, states, network.jumps_, network.jump_begin_, [](const JumpFrom& j) { return j.target; }, ends);
  index_by_source(
      calls_, states, network.calls_, network.call_begin_, [](const CallFrom& c) { return RuleNetwork::Call(c); },
      [&](const CallFrom& call) { return ends(call) && height[rule_start_[call.rule]] != kNever; });
  classify_symbols(network);
  network.final_ = std::move(final_);
  network.plain_ = std::move(plain_);
  network.rule_start_ = rule_start_;
  network.leaf_ = leaf_;
  check_rules(network);
  return network;
}

}  // namespace folio
