#include "protocol/grammar_chars.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

[[noreturn]] void fail_size(size_t limit, const char* what) {
  fail(ErrorCode::kInvalidArgument, "the pattern is too large: it needs more than ", limit, " ", what,
       "; use shorter lengths or fewer repetitions");
}

// Copies the states of `from` into `to`; state 0 of it becomes the result.
uint32_t copy_states(const CharAutomaton& from, CharAutomaton& to) {
  const auto base = static_cast<uint32_t>(to.states().size());
  for (const auto& state : from.states()) to.add_state(state.final);
  for (uint32_t i = 0; i < from.states().size(); ++i) {
    for (const auto& edge : from.states()[i].edges) to.add_edge(base + i, from.set(edge.set), base + edge.target);
    for (const uint32_t target : from.states()[i].jumps) to.add_jump(base + i, base + target);
  }
  return base;
}

}  // namespace

namespace {
thread_local AutomatonMeter* meter = nullptr;
}

AutomatonMeter::AutomatonMeter() : outer_(std::exchange(meter, this)) {}
AutomatonMeter::~AutomatonMeter() { meter = outer_; }

void AutomatonMeter::count() {
  if (meter == nullptr || --meter->left_ >= 0) return;
  fail(ErrorCode::kInvalidArgument, "the patterns and bounds are too large together; use fewer or simpler ones");
}

CharSet::CharSet(std::vector<Range> ranges) {
  std::ranges::sort(ranges);
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.low <= ranges_.back().high + 1) {
      ranges_.back().high = std::max(ranges_.back().high, range.high);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool CharSet::contains(char32_t c) const {
  return std::ranges::any_of(ranges_, [c](const Range& range) { return range.low <= c && c <= range.high; });
}

CharSet CharSet::complement() const {
  CharSet result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.low > next) result.ranges_.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kLastCodePoint) result.ranges_.push_back({next, kLastCodePoint});
  return result;
}

CharSet operator&(const CharSet& a, const CharSet& b) {
  CharSet result;
  for (size_t i = 0, j = 0; i < a.ranges_.size() && j < b.ranges_.size();) {
    const char32_t low = std::max(a.ranges_[i].low, b.ranges_[j].low);
    const char32_t high = std::min(a.ranges_[i].high, b.ranges_[j].high);
    if (low <= high) result.ranges_.push_back({low, high});
    if (a.ranges_[i].high < b.ranges_[j].high) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

CharSet operator|(const CharSet& a, const CharSet& b) {
  std::vector<CharSet::Range> ranges = a.ranges_;
  ranges.insert(ranges.end(), b.ranges_.begin(), b.ranges_.end());
  return CharSet(std::move(ranges));
}

std::u32string code_points(std::string_view text) {
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = decode_utf8(text.data() + at);
    result.push_back(c.code_point);
    at += c.length;
  }
  return result;
}

uint32_t CharAutomaton::add_state(bool final) {
  AutomatonMeter::count();
  if (states_.size() >= kMaxStates) fail_size(kMaxStates, "states");
  states_.push_back({.edges = {}, .jumps = {}, .final = final});
  return static_cast<uint32_t>(states_.size() - 1);
}

void CharAutomaton::add_edge(uint32_t from, const CharSet& set, uint32_t to) {
  AutomatonMeter::count();
  if (set.empty()) return;
  if (++num_edges_ > kMaxEdges) fail_size(kMaxEdges, "edges");
  const auto [known, added] = set_index_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
  if (added) sets_.push_back(set);
  states_[from].edges.push_back({known->second, to});
}

void CharAutomaton::add_jump(uint32_t from, uint32_t to) {
  AutomatonMeter::count();
  if (++num_edges_ > kMaxEdges) fail_size(kMaxEdges, "edges");
  states_[from].jumps.push_back(to);
}

uint32_t CharAutomaton::add_text(uint32_t from, std::string_view text) {
  for (const char32_t c : code_points(text)) {
    const uint32_t to = add_state();
    add_edge(from, CharSet::of(c), to);
    from = to;
  }
  return from;
}

CharAutomaton CharAutomaton::any_text() {
  CharAutomaton result;
  result.set_final(0);
  result.add_edge(0, CharSet::all(), 0);
  return result;
}

CharAutomaton CharAutomaton::one_of(std::span<const std::string> texts) {
  CharAutomaton result;
  std::map<std::pair<uint32_t, char32_t>, uint32_t> trie;
  for (const std::string& text : texts) {
    uint32_t state = 0;
    for (const char32_t c : code_points(text)) {
      const auto [known, added] = trie.try_emplace({state, c}, 0);
      if (added) {
        known->second = result.add_state();
        result.add_edge(state, CharSet::of(c), known->second);
      }
      state = known->second;
    }
    result.set_final(state);
  }
  return result;
}

// The trie of the texts, final where it does not end one, with a way out to any text at each character that is not in
// it.
CharAutomaton CharAutomaton::none_of(std::span<const std::string> texts) {
  CharAutomaton result = one_of(texts);
  const size_t inside = result.states_.size();
  const uint32_t outside = result.add_state(true);
  result.add_edge(outside, CharSet::all(), outside);
  for (uint32_t state = 0; state < inside; ++state) {
    std::vector<CharSet::Range> next;
    for (const Edge& edge : result.states_[state].edges) {
      const auto ranges = result.sets_[edge.set].ranges();
      next.insert(next.end(), ranges.begin(), ranges.end());
    }
    result.states_[state].final = !result.states_[state].final;
    result.add_edge(state, CharSet(std::move(next)).complement(), outside);
  }
  return result;
}

// State i: the last i characters are the longest beginning of `part` that the text ends in.
CharAutomaton CharAutomaton::without(std::u32string_view part) {
  CharAutomaton result;
  result.set_final(0);
  for (size_t i = 1; i < part.size(); ++i) result.add_state(true);
  for (size_t i = 0; i < part.size(); ++i) {
    std::vector<CharSet> to(part.size());  // characters that lead to each state
    CharSet letters;
    for (const char32_t c : part) {
      letters = letters | CharSet::of(c);
      std::u32string text(part.substr(0, i));
      text.push_back(c);
      size_t suffix = text.size();
      while (!part.starts_with(std::u32string_view(text).substr(text.size() - suffix))) --suffix;
      if (suffix < part.size()) to[suffix] = to[suffix] | CharSet::of(c);
    }
    to[0] = to[0] | letters.complement();
    for (size_t j = 0; j < part.size(); ++j) result.add_edge(static_cast<uint32_t>(i), to[j], static_cast<uint32_t>(j));
  }
  return result;
}

CharAutomaton CharAutomaton::length(int64_t least, int64_t most) {
  CharAutomaton result;
  const CharSet all = CharSet::all();
  const int64_t last = most < 0 ? least : most;
  for (int64_t i = 0; i < last; ++i) {
    if (i >= least) result.set_final(static_cast<uint32_t>(i));
    const uint32_t to = result.add_state();
    result.add_edge(static_cast<uint32_t>(i), all, to);
  }
  if (last >= least) result.set_final(static_cast<uint32_t>(last));
  if (most < 0) result.add_edge(static_cast<uint32_t>(last), all, static_cast<uint32_t>(last));
  return result;
}

bool CharAutomaton::empty() const {
  const CharAutomaton result = trimmed();
  return result.states_.size() == 1 && !result.states_[0].final && result.states_[0].edges.empty();
}

bool CharAutomaton::accepts(std::string_view text) const {
  std::set<uint32_t> now;
  const auto add = [&](auto&& self, std::set<uint32_t>& to, uint32_t state) -> void {
    if (!to.insert(state).second) return;
    for (const uint32_t target : states_[state].jumps) self(self, to, target);
  };
  add(add, now, 0);
  for (const char32_t c : code_points(text)) {
    std::set<uint32_t> next;
    for (const uint32_t state : now) {
      for (const Edge& edge : states_[state].edges) {
        if (sets_[edge.set].contains(c)) add(add, next, edge.target);
      }
    }
    now = std::move(next);
  }
  return std::ranges::any_of(now, [this](uint32_t state) { return states_[state].final; });
}

CharAutomaton CharAutomaton::trimmed() const {
  const auto spread = [](std::vector<uint8_t>& seen, std::vector<uint32_t> pending, const auto& neighbours) {
    for (const uint32_t state : pending) seen[state] = 1;
    while (!pending.empty()) {
      const uint32_t state = pending.back();
      pending.pop_back();
      neighbours(state, [&](uint32_t to) {
        if (std::exchange(seen[to], uint8_t{1}) == 0) pending.push_back(to);
      });
    }
  };
  std::vector<std::vector<uint32_t>> sources(states_.size());
  std::vector<uint32_t> finals;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    for (const Edge& edge : states_[i].edges) sources[edge.target].push_back(i);
    for (const uint32_t target : states_[i].jumps) sources[target].push_back(i);
    if (states_[i].final) finals.push_back(i);
  }
  std::vector<uint8_t> reached(states_.size(), 0), ends(states_.size(), 0);
  spread(reached, {0}, [&](uint32_t state, const auto& visit) {
    for (const Edge& edge : states_[state].edges) visit(edge.target);
    for (const uint32_t target : states_[state].jumps) visit(target);
  });
  spread(ends, finals, [&](uint32_t state, const auto& visit) {
    for (const uint32_t source : sources[state]) visit(source);
  });

  CharAutomaton result;
  std::vector<uint32_t> id(states_.size(), 0);
  const auto kept = [&](uint32_t i) { return reached[i] != 0 && ends[i] != 0; };
  if (kept(0) && states_[0].final) result.set_final(0);
  for (uint32_t i = 1; i < states_.size(); ++i) {
    if (kept(i)) id[i] = result.add_state(states_[i].final);
  }
  for (uint32_t i = 0; i < states_.size(); ++i) {
    if (!kept(i)) continue;
    for (const Edge& edge : states_[i].edges) {
      if (kept(edge.target)) result.add_edge(id[i], sets_[edge.set], id[edge.target]);
    }
    for (const uint32_t target : states_[i].jumps) {
      if (kept(target)) result.add_jump(id[i], id[target]);
    }
  }
  return result;
}

CharAutomaton intersection(const CharAutomaton& a, const CharAutomaton& b) {
  CharAutomaton result;
  std::unordered_map<uint64_t, uint32_t> known;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const auto state_of = [&](uint32_t i, uint32_t j) {
    const auto [entry, added] = known.try_emplace(uint64_t{i} << 32 | j, static_cast<uint32_t>(pairs.size()));
    if (added) {
      const bool final = a.states()[i].final && b.states()[j].final;
      if (pairs.empty()) {
        if (final) result.set_final(0);
      } else {
        result.add_state(final);
      }
      pairs.emplace_back(i, j);
    }
    return entry->second;
  };
  std::map<std::pair<uint32_t, uint32_t>, CharSet> common;
  state_of(a.start(), b.start());
  for (size_t at = 0; at < pairs.size(); ++at) {
    const auto [i, j] = pairs[at];
    const auto from = static_cast<uint32_t>(at);
    for (const uint32_t to : a.states()[i].jumps) result.add_jump(from, state_of(to, j));
    for (const uint32_t to : b.states()[j].jumps) result.add_jump(from, state_of(i, to));
    for (const auto& left : a.states()[i].edges) {
      for (const auto& right : b.states()[j].edges) {
        AutomatonMeter::count();
        const auto [entry, added] = common.try_emplace({left.set, right.set});
        if (added) entry->second = a.set(left.set) & b.set(right.set);
        if (!entry->second.empty()) result.add_edge(from, entry->second, state_of(left.target, right.target));
      }
    }
  }
  return result.trimmed();
}

CharAutomaton either(const CharAutomaton& a, const CharAutomaton& b) {
  CharAutomaton result;
  result.add_jump(0, copy_states(a, result));
  result.add_jump(0, copy_states(b, result));
  return result;
}

CharAutomaton prefixed(std::string_view text, const CharAutomaton& a) {
  CharAutomaton result;
  const uint32_t behind = result.add_text(0, text);
  result.add_jump(behind, copy_states(a, result));
  return result;
}

}  // namespace folio
