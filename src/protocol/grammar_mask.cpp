#include "protocol/grammar_mask.h"

#include <algorithm>

#include "base/error.h"

namespace folio {
namespace {

void set_bit(std::span<uint64_t> bits, int32_t id) {
  bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
}

bool has_bit(std::span<const uint64_t> bits, int32_t id) {
  return (bits[static_cast<size_t>(id) / 64] >> (static_cast<size_t>(id) % 64) & 1) != 0;
}

}  // namespace

MaskedAutomaton::MaskedAutomaton(const GrammarVocabulary& vocabulary, const RuleNetwork& network, int32_t max_depth)
    : vocabulary_(&vocabulary), states_(network, max_depth) {}

MaskedAutomaton::Step MaskedAutomaton::next(uint32_t state, int32_t token) {
  const std::scoped_lock lock(mutex_);
  const auto symbols =
      token >= 0 && token < vocabulary_->size() ? vocabulary_->symbols(token) : std::span<const uint16_t>();
  if (symbols.empty()) return {.state = kDead, .may_end = false, .must_end = true};
  for (const uint16_t symbol : symbols) state = states_.next(state, symbol);
  const bool may_end = states_.accepting(state);
  return {.state = state, .may_end = may_end, .must_end = !states_.open(state)};
}

bool MaskedAutomaton::accepts(std::span<const uint16_t> symbols) {
  const std::scoped_lock lock(mutex_);
  uint32_t state = states_.start();
  for (const uint16_t symbol : symbols) state = states_.next(state, symbol);
  return states_.accepting(state);
}

bool MaskedAutomaton::crowded() const {
  const std::scoped_lock lock(mutex_);
  return states_.size_bytes() > kCrowdedBytes;
}

size_t MaskedAutomaton::size_bytes() const {
  const std::scoped_lock lock(mutex_);
  return states_.size_bytes() + mask_bytes_;
}

void MaskedAutomaton::mask(uint32_t state, std::span<uint64_t> bits) {
  const std::scoped_lock lock(mutex_);
  auto known = masks_.find(state);
  if (known == masks_.end()) {
    TokenMask made = make_mask(state);
    mask_bytes_ += made.size_bytes() + sizeof(TokenMask);
    if (mask_bytes_ > kMaxMaskBytes) {
      masks_.clear();
      mask_bytes_ = made.size_bytes() + sizeof(TokenMask);
    }
    known = masks_.emplace(state, std::move(made)).first;
  }
  const TokenMask& mask = known->second;
  kept_.clear();
  for (const int32_t id : mask.ids) {
    if (has_bit(bits, id)) kept_.push_back(id);
  }
  const size_t words = std::min(bits.size(), vocabulary_->words());
  for (size_t w = 0; w < words; ++w) {
    bits[w] &= (mask.plain != nullptr ? (*mask.plain)[w] : 0) | (mask.bits.empty() ? 0 : mask.bits[w]);
  }
  std::fill(bits.begin() + static_cast<std::ptrdiff_t>(words), bits.end(), 0);
  for (const int32_t id : kept_) set_bit(bits, id);
}

// What is going on splits in two: places that take plain text, whose tokens are looked up but for the odd ones, and the
// rest, for which the whole trie is walked. What a state takes is what its places take, each alone.
TokenMask MaskedAutomaton::make_mask(uint32_t state) {
  const LazyAutomaton::Mark mark = states_.mark();
  TokenMask mask;
  std::vector<LazyAutomaton::Item> plain, rest;
  PlainText kind = PlainText::kNone;
  int32_t room = 0;
  for (const auto& item : states_.items(state)) {
    const RuleNetwork::Plain here = states_.network().plain(item.place);
    const bool fits = here.kind != PlainText::kNone && (kind == PlainText::kNone || kind == here.kind);
    (fits ? plain : rest).push_back(item);
    if (!fits) continue;
    kind = here.kind;
    room = std::max(room, here.room);
  }
  if (!plain.empty()) {
    const PlainTokens& tokens = vocabulary_->plain(kind);
    mask.plain = &tokens.up_to(room);
    walk(tokens.others, states_.state_of(plain), mask.ids);
  }
  if (!rest.empty()) walk(vocabulary_->trie(), states_.state_of(rest), mask.ids);
  if (states_.accepting(state) || state == kDead) mask.ids.push_back(vocabulary_->eos());
  if (mask.ids.size() * sizeof(int32_t) > vocabulary_->words() * sizeof(uint64_t)) {
    mask.bits.assign(vocabulary_->words(), 0);
    for (const int32_t id : mask.ids) set_bit(mask.bits, id);
    mask.ids.clear();
  }
  mask.ids.shrink_to_fit();
  if (states_.size_bytes() > kCrowdedBytes) states_.forget_since(mark);
  return mask;
}

void MaskedAutomaton::walk(const TokenTrie& trie, uint32_t state, std::vector<int32_t>& ids) {
  const size_t first = ids.size();
  const size_t nodes = trie.size();
  path_.assign(1, state);
  size_t work = 0;
  for (size_t node = 0; node < nodes;) {
    const size_t depth = trie.depth[node];
    const uint32_t to = states_.next(path_[depth - 1], trie.symbol[node]);
    if (to == LazyAutomaton::kDead) {
      node = trie.end[node];
      continue;
    }
    work += 1 + states_.items(to).size();
    if (work > kMaxWork) {
      ids.resize(first);
      return walk_single_symbols(trie, state, ids);
    }
    path_.resize(std::max(path_.size(), depth + 1));
    path_[depth] = to;
    const auto tokens = trie.tokens_of(node);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    ++node;
  }
}

void MaskedAutomaton::walk_single_symbols(const TokenTrie& trie, uint32_t state, std::vector<int32_t>& ids) {
  for (size_t node = 0; node < trie.size(); node = trie.end[node]) {
    if (states_.next(state, trie.symbol[node]) == LazyAutomaton::kDead) continue;
    const auto tokens = trie.tokens_of(node);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }
}

}  // namespace folio
