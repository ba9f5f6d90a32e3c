// Text to token ids and back: byte-level BPE with added tokens, from tokenizer.json (protocol spec 1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenizer.h"

namespace folio {

struct TokenizerFile;

// What text may match added tokens such as <｜User｜>.
enum class Special : uint8_t {
  kMatch,   // all of it: raw prompts
  kAsText,  // none of it: text that a user wrote
};

// Immutable after construction; safe to use from any number of threads. Movable, not copyable.
class Tokenizer {
 public:
  // Reads a tokenizer.json, or the one in the directory `path`. Throws Error(kNotFound) when it cannot be read and
  // Error(kInvalidTokenizer) when it is not a tokenizer that Folio supports, with the reason.
  static Tokenizer load(const std::string& path);

  // The same from memory; `origin` names the text in messages.
  static Tokenizer parse(std::string_view json, const std::string& origin);

  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of `text`; nothing is added in front or behind. Throws Error(kInvalidArgument) when `text` is not well-formed
  // UTF-8 or larger than 1 GiB.
  std::vector<int32_t> encode(std::string_view text, Special special = Special::kMatch) const;

  // Ids of a text that is partly written by users: an added token that overlaps one of the byte ranges `untrusted` is
  // not matched (protocol spec 1.4). The ranges are ascending, disjoint and inside the text; empty ones mean nothing.
  std::vector<int32_t> encode(std::string_view text, std::span<const ByteRange> untrusted) const;

  // Number of ids. Every id in 0..vocab_size()-1 has a token.
  int32_t vocab_size() const { return static_cast<int32_t>(offsets_.size() - 1); }

  // Bytes that token `id` stands for: never empty, not always whole UTF-8. `id` is in range (FOLIO_CHECK).
  std::string_view bytes(int32_t id) const;

  // The token as the vocabulary spells it: added tokens literally, others in the byte-level alphabet.
  std::string spelling(int32_t id) const;

  bool is_added(int32_t id) const { return added_.contains(id); }

  // Id of the added token whose text is `text`.
  std::optional<int32_t> find_added(std::string_view text) const { return added_.find(text); }

  // Begin of sentence, end of sentence and padding: the tokens that are no text for a reader (protocol spec 1.4).
  // Found by their published spelling; a vocabulary without them hides nothing.
  bool is_hidden(int32_t id) const;

  // Text of `ids`: their bytes in order, ill-formed UTF-8 replaced by U+FFFD. Throws Error(kInvalidArgument) on an id
  // outside the vocabulary. With skip_hidden, tokens with is_hidden() are left out.
  std::string decode(std::span<const int32_t> ids, bool skip_hidden = false) const;

  // Throws Error(kInvalidArgument) naming the first id that is not in the vocabulary.
  void check_ids(std::span<const int32_t> ids) const;

 private:
  Tokenizer(const TokenizerFile& file, const std::string& origin);
  void encode_between(std::string_view text, BytePairEncoder::Workspace& workspace, std::vector<int32_t>& ids) const;

  std::vector<char> bytes_;      // of all tokens, by id
  std::vector<size_t> offsets_;  // vocab_size() + 1
  AddedTokens added_;
  BytePairEncoder bpe_;
  PreTokenizer pre_tokenizer_;
  std::vector<int32_t> hidden_;
};

}  // namespace folio
