// Masks over a vocabulary for the states of a grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "protocol/grammar_lazy.h"
#include "protocol/grammar_vocabulary.h"

namespace folio {

// The token ids that a state takes, in the smallest form: plain text up to a length that the vocabulary has ready, and
// what comes on top as ids or, where they are many, as a bitset.
struct TokenMask {
  const TokenBits* plain = nullptr;
  std::vector<int32_t> ids;
  TokenBits bits;

  size_t size_bytes() const { return ids.capacity() * sizeof(int32_t) + bits.capacity() * sizeof(uint64_t); }
};

// A LazyAutomaton that takes tokens, with the masks of its states. Shared by the policies of a grammar; thread-safe.
// States stay valid as long as it lives. It grows with what its policies meet; `crowded` says that new policies should
// get a fresh one.
class MaskedAutomaton {
 public:
  static constexpr uint32_t kDead = LazyAutomaton::kDead;
  static constexpr size_t kCrowdedBytes = size_t{48} << 20;  // of states
  static constexpr size_t kMaxMaskBytes = size_t{16} << 20;  // kept; all are forgotten beyond
  // Of one mask: nodes of the trie, each by the number of places that are going on there. A grammar that needs more
  // allows fewer tokens than it could, the same ones every time; every single byte is looked at.
  static constexpr size_t kMaxWork = size_t{8} << 20;

  // `vocabulary` and `network` must outlive it.
  MaskedAutomaton(const GrammarVocabulary& vocabulary, const RuleNetwork& network, int32_t max_depth);

  uint32_t start() const { return states_.start(); }

  struct Step {
    uint32_t state;  // kDead: the token may not come, or it ends the text
    bool may_end;    // the text may end behind it
    bool must_end;   // nothing may follow it
  };
  Step next(uint32_t state, int32_t token);

  // Clears the bits of tokens that may not come in `state`. In kDead the end of sentence alone may come.
  void mask(uint32_t state, std::span<uint64_t> bits);

  // The text that `symbols` spell is complete.
  bool accepts(std::span<const uint16_t> symbols);

  bool crowded() const;
  size_t size_bytes() const;

 private:
  TokenMask make_mask(uint32_t state);
  // Tokens of `trie` that `state` takes.
  void walk(const TokenTrie& trie, uint32_t state, std::vector<int32_t>& ids);
  void walk_single_symbols(const TokenTrie& trie, uint32_t state, std::vector<int32_t>& ids);

  const GrammarVocabulary* vocabulary_;
  mutable std::mutex mutex_;
  LazyAutomaton states_;
  std::unordered_map<uint32_t, TokenMask> masks_;
  size_t mask_bytes_ = 0;
  std::vector<uint32_t> path_;  // scratch: states along a way through the trie
  std::vector<int32_t> kept_;   // scratch
};

}  // namespace folio
