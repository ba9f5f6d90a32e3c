// The tokens of a vocabulary as grammars see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/grammar_automaton.h"
#include "tokenizer/tokenizer.h"

namespace folio {

inline constexpr std::string_view kMarkerText = "\uFF5CDSML\uFF5C";

// Tokens by their symbols. Nodes stand in depth-first order, so the subtree of one is the nodes up to its end.
struct TokenTrie {
  std::vector<uint16_t> symbol;
  std::vector<uint16_t> depth;  // symbols from the root, at least 1
  std::vector<uint32_t> end;
  std::vector<uint32_t> token_begin;  // size() + 1: where a node's tokens stand in `tokens`
  std::vector<int32_t> tokens;

  size_t size() const { return symbol.size(); }
  std::span<const int32_t> tokens_of(size_t node) const {
    return std::span(tokens).subspan(token_begin[node], token_begin[node + 1] - token_begin[node]);
  }
};

// A set of token ids.
using TokenBits = std::vector<uint64_t>;

// The tokens of one kind of plain text.
struct PlainTokens {
  // [n]: tokens that are at most n plain characters, a beginning of one at the end counted as one. The last holds all.
  std::vector<TokenBits> at_most;
  // All others, and those that end within a character that may turn out not to be plain.
  TokenTrie others;

  const TokenBits& up_to(int32_t room) const {
    return at_most[std::min(static_cast<size_t>(room), at_most.size() - 1)];
  }
};

// Immutable; safe to share between threads. Added tokens are no text, so no grammar takes them, but for the marker.
class GrammarVocabulary {
 public:
  // Throws Error(kUnsupported) when some byte of UTF-8 has no token of its own: an answer could get stuck.
  GrammarVocabulary(const Tokenizer& tokenizer, int32_t eos);

  int32_t size() const { return static_cast<int32_t>(begin_.size() - 1); }
  int32_t eos() const { return eos_; }
  size_t words() const { return (static_cast<size_t>(size()) + 63) / 64; }  // of a TokenBits

  // Symbols of a token; none for tokens that are no text.
  std::span<const uint16_t> symbols(int32_t id) const {
    return std::span(symbols_).subspan(begin_[static_cast<size_t>(id)],
                                       begin_[static_cast<size_t>(id) + 1] - begin_[static_cast<size_t>(id)]);
  }
  // The marker of call blocks has a token, and so is kMarkerSymbol; else it is its bytes.
  bool has_marker() const { return has_marker_; }

  const TokenTrie& trie() const { return trie_; }
  const PlainTokens& plain(PlainText kind) const { return kind == PlainText::kJson ? json_ : raw_; }

 private:
  using Entry = std::pair<std::span<const uint16_t>, int32_t>;

  PlainTokens plain_tokens(std::span<const Entry> sorted, PlainText kind) const;

  int32_t eos_;
  bool has_marker_ = false;
  std::vector<uint16_t> symbols_;  // of all tokens, by id
  std::vector<size_t> begin_;
  TokenTrie trie_;
  PlainTokens json_, raw_;
};

// Characters of a token that is plain text of `kind`, one that is begun at its end included; nothing if it is not, or
// if what it begins may turn out not to be.
std::optional<int32_t> plain_length(std::string_view token, PlainText kind);

}  // namespace folio
