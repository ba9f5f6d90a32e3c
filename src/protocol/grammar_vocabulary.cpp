#include "protocol/grammar_vocabulary.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

bool is_plain(char32_t c, PlainText kind) {
  if (c == U'\uFF5C') return false;
  return kind == PlainText::kRaw ? c != U'<' : c >= 0x20 && c != U'"' && c != U'\\';
}

// Of the sorted texts with their ids.
template <typename Entry>
TokenTrie make_trie(std::span<const Entry> sorted) {
  TokenTrie trie;
  std::vector<uint32_t> open;  // nodes of the text before
  std::span<const uint16_t> before;
  const auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) trie.end[open.back()] = static_cast<uint32_t>(trie.size());
  };
  for (const auto& [text, id] : sorted) {
    const auto shared = static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    close_to(shared);
    for (size_t i = shared; i < text.size(); ++i) {
      open.push_back(static_cast<uint32_t>(trie.size()));
      trie.symbol.push_back(text[i]);
      trie.depth.push_back(static_cast<uint16_t>(i + 1));
      trie.end.push_back(0);
      trie.token_begin.push_back(static_cast<uint32_t>(trie.tokens.size()));
    }
    trie.tokens.push_back(id);
    before = text;
  }
  close_to(0);
  trie.token_begin.push_back(static_cast<uint32_t>(trie.tokens.size()));
  return trie;
}

std::string bytes_of(std::span<const uint16_t> symbols) {
  std::string text;
  for (const uint16_t symbol : symbols) text.push_back(static_cast<char>(symbol));
  return text;
}

// A byte that occurs in UTF-8.
bool in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

std::optional<int32_t> plain_length(std::string_view token, PlainText kind) {
  int32_t length = 0;
  for (size_t at = 0; at < token.size(); ++length) {
    const auto [status, bytes] = utf8_sequence(token, at);
    if (status == Utf8Kind::kInvalid) return std::nullopt;
    if (status == Utf8Kind::kIncomplete) {
      if (std::string_view("\uFF5C").starts_with(token.substr(at))) return std::nullopt;
    } else if (!is_plain(decode_utf8(token.data() + at).code_point, kind)) {
      return std::nullopt;
    }
    at += bytes;
  }
  return length;
}

GrammarVocabulary::GrammarVocabulary(const Tokenizer& tokenizer, int32_t eos) : eos_(eos), begin_{0} {
  const std::optional<int32_t> marker = tokenizer.find_added(kMarkerText);
  has_marker_ = marker.has_value();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (id == marker) {
      symbols_.push_back(kMarkerSymbol);
    } else if (!tokenizer.is_added(id) && id != eos) {
      for (const char byte : tokenizer.bytes(id)) symbols_.push_back(static_cast<unsigned char>(byte));
    }
    begin_.push_back(symbols_.size());
  }
  std::vector<Entry> entries;
  for (int32_t id = 0; id < size(); ++id) {
    if (!symbols(id).empty()) entries.emplace_back(symbols(id), id);
  }
  // Tokens of equal bytes share a node, so equal texts must stand together; their order by id makes the sort total.
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    const auto order =
        std::lexicographical_compare_three_way(a.first.begin(), a.first.end(), b.first.begin(), b.first.end());
    return order != 0 ? order < 0 : a.second < b.second;
  });
  trie_ = make_trie(std::span<const Entry>(entries));
  std::vector<bool> single(kSymbols, false);
  for (const auto& [text, id] : entries) {
    if (text.size() == 1) single[text[0]] = true;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (in_utf8(byte) && !single[static_cast<size_t>(byte)]) {
      fail(ErrorCode::kUnsupported, "structured output needs a token for every byte; the vocabulary has none for byte ",
           byte);
    }
  }
  json_ = plain_tokens(entries, PlainText::kJson);
  raw_ = plain_tokens(entries, PlainText::kRaw);
}

PlainTokens GrammarVocabulary::plain_tokens(std::span<const Entry> sorted, PlainText kind) const {
  PlainTokens plain;
  std::vector<Entry> others;
  std::vector<std::pair<int32_t, int32_t>> lengths;  // (characters, id)
  for (const Entry& entry : sorted) {
    const bool marker = entry.first[0] == kMarkerSymbol;
    const auto length = marker ? std::nullopt : plain_length(bytes_of(entry.first), kind);
    if (length) {
      lengths.emplace_back(*length, entry.second);
    } else {
      others.push_back(entry);
    }
  }
  std::ranges::sort(lengths);
  TokenBits bits(words(), 0);
  size_t at = 0;
  const int32_t longest = lengths.empty() ? 0 : lengths.back().first;
  for (int32_t room = 0; room <= longest; ++room) {
    for (; at < lengths.size() && lengths[at].first <= room; ++at) {
      const auto id = static_cast<size_t>(lengths[at].second);
      bits[id / 64] |= uint64_t{1} << (id % 64);
    }
    plain.at_most.push_back(bits);
  }
  plain.others = make_trie(std::span<const Entry>(others));
  return plain;
}

}  // namespace folio
