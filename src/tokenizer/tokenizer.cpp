#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/memory.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

// U+FF5C FULLWIDTH VERTICAL LINE and U+2581 LOWER ONE EIGHTH BLOCK, not the ASCII lookalikes.
constexpr std::string_view kHiddenSpellings[] = {
    "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "<\uFF5C\u2581pad\u2581\uFF5C>",
};

// Turns the lists of the file into tables by id, refusing what does not fit together.
class Builder {
 public:
  Builder(const TokenizerFile& file, const std::string& origin) : file_(file), origin_(origin) {
    place_tokens();
    decode_tokens();
    resolve_merges();
  }

  std::vector<std::string> bytes;  // by id
  std::vector<AddedTokens::Token> added;
  std::array<int32_t, 256> byte_ids;
  std::vector<BytePairEncoder::Merge> merges;
  std::vector<bool> is_added;  // by id

 private:
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    folio::fail(ErrorCode::kInvalidTokenizer, origin_, ": ", parts...);
  }

  // An id is bounded by how many tokens there are, never by what it claims.
  void check_id(const TokenizerFile::Token& token, size_t count) const {
    if (token.id < 0 || static_cast<uint64_t>(token.id) >= count) {
      fail("the id ", token.id, " of \"", token.text, "\" is out of range: ", count, " tokens have the ids 0 to ",
           count - 1);
    }
  }

  void place_tokens() {
    const size_t most = file_.vocab.size() + file_.added.size();
    texts_.resize(most);
    ids_.reserve(file_.vocab.size());
    size_t count = 0;
    for (const TokenizerFile::Token& token : file_.vocab) {
      check_id(token, most);
      if (token.text.empty()) fail("model.vocab has an empty token");
      place(token);
      if (!ids_.emplace(token.text, static_cast<int32_t>(token.id)).second) {
        fail("model.vocab has \"", token.text, "\" twice");
      }
      ++count;
    }
    is_added.resize(most);
    std::unordered_set<std::string_view> contents;
    for (const TokenizerFile::Token& token : file_.added) {
      check_id(token, most);
      if (!contents.insert(token.text).second) fail("added_tokens has \"", token.text, "\" twice");
      const auto known = ids_.find(token.text);
      if (known == ids_.end()) {
        place(token);
        ++count;
      } else if (known->second != token.id) {
        fail("the added token \"", token.text, "\" has the id ", token.id, ", but ", known->second, " in model.vocab");
      }
      is_added[static_cast<size_t>(token.id)] = true;
      added.push_back({token.text, static_cast<int32_t>(token.id)});
    }
    for (const TokenizerFile::Token& token : file_.vocab) check_id(token, count);
    for (const TokenizerFile::Token& token : file_.added) check_id(token, count);
    texts_.resize(count);
    is_added.resize(count);
  }

  void place(const TokenizerFile::Token& token) {
    std::string_view& text = texts_[static_cast<size_t>(token.id)];
    if (!text.empty()) fail("the tokens \"", text, "\" and \"", token.text, "\" have the same id ", token.id);
    text = token.text;
  }

  void decode_tokens() {
    bytes.resize(texts_.size());
    byte_ids.fill(-1);
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (is_added[id]) {
        bytes[id] = texts_[id];
        continue;
      }
      if (!bytes_of_spelling(texts_[id], bytes[id])) {
        fail("the token \"", texts_[id], "\" (id ", id, ") is not spelled in the byte-level alphabet");
      }
      if (bytes[id].size() == 1) byte_ids[static_cast<unsigned char>(bytes[id][0])] = static_cast<int32_t>(id);
    }
    for (size_t byte = 0; byte < byte_ids.size(); ++byte) {
      if (byte_ids[byte] < 0) fail("model.vocab has no token for the byte ", byte, ": some text could not be encoded");
    }
  }

  int32_t id_of(const std::string& text, size_t merge) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) fail("model.merges[", merge, "]: \"", text, "\" is not in model.vocab");
    // Untrusted text must not reach an added token through merges either.
    if (is_added[static_cast<size_t>(found->second)])
      fail("model.merges[", merge, "] uses the added token \"", text, "\"");
    return found->second;
  }

  void resolve_merges() {
    merges.reserve(file_.merges.size());
    std::unordered_set<uint64_t> pairs;
    pairs.reserve(file_.merges.size());
    for (const auto& [left, right] : file_.merges) {
      const size_t index = merges.size();
      const BytePairEncoder::Merge merge{id_of(left, index), id_of(right, index), id_of(left + right, index)};
      const uint64_t pair = static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
      if (!pairs.insert(pair).second) fail("model.merges[", index, "] repeats \"", left, " ", right, "\"");
      merges.push_back(merge);
    }
  }

  const TokenizerFile& file_;
  const std::string& origin_;
  std::vector<std::string_view> texts_;                // by id
  std::unordered_map<std::string_view, int32_t> ids_;  // of model.vocab
};

}  // namespace

Tokenizer::Tokenizer(const TokenizerFile& file, const std::string& origin) : pre_tokenizer_(file.pre_tokenizer) {
  Builder builder(file, origin);
  offsets_.reserve(builder.bytes.size() + 1);
  offsets_.push_back(0);
  for (const std::string& token : builder.bytes) {
    bytes_.insert(bytes_.end(), token.begin(), token.end());
    offsets_.push_back(bytes_.size());
  }
  added_ = AddedTokens(std::move(builder.added));
  std::vector<std::string_view> mergeable(builder.bytes.size());
  for (size_t id = 0; id < mergeable.size(); ++id) {
    if (!builder.is_added[id]) mergeable[id] = bytes(static_cast<int32_t>(id));
  }
  bpe_ = BytePairEncoder(builder.byte_ids, builder.merges, mergeable);
  for (const std::string_view spelling : kHiddenSpellings) {
    if (const auto id = added_.find(spelling)) hidden_.push_back(*id);
  }
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& origin) {
  return Tokenizer(parse_tokenizer_file(json, origin), origin);
}

Tokenizer Tokenizer::load(const std::string& path) {
  std::error_code ignored;
  const std::string file = std::filesystem::is_directory(path, ignored) ? path + "/tokenizer.json" : path;
  return parse(read_file(file, kMaxTokenizerFileBytes), file);
}

std::string_view Tokenizer::bytes(int32_t id) const {
  FOLIO_CHECK(id >= 0 && id < vocab_size(), "token id ", id);
  const size_t index = static_cast<size_t>(id);
  return {bytes_.data() + offsets_[index], offsets_[index + 1] - offsets_[index]};
}

std::string Tokenizer::spelling(int32_t id) const {
  return is_added(id) ? std::string(bytes(id)) : spelling_of_bytes(bytes(id));
}

bool Tokenizer::is_hidden(int32_t id) const { return std::find(hidden_.begin(), hidden_.end(), id) != hidden_.end(); }

void Tokenizer::encode_between(std::string_view text, BytePairEncoder::Workspace& workspace,
                               std::vector<int32_t>& ids) const {
  PieceScanner scanner(pre_tokenizer_, text);
  for (std::string_view piece; scanner.next(piece);) bpe_.encode(piece, workspace, ids);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Special special) const {
  const ByteRange whole{0, text.size()};
  return encode(text, special == Special::kMatch ? std::span<const ByteRange>() : std::span(&whole, 1));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::span<const ByteRange> untrusted) const {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorCode::kInvalidArgument, "a text of ", text.size(), " bytes is longer than the limit of ", kMaxTextBytes);
  }
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != text.size()) {
    fail(ErrorCode::kInvalidArgument, "the text is not UTF-8: invalid byte at offset ", invalid);
  }
  size_t covered = 0;
  for (const ByteRange& range : untrusted) {
    FOLIO_CHECK(covered <= range.begin && range.begin <= range.end && range.end <= text.size(), "untrusted range ",
                range.begin, "..", range.end);
    covered = range.end;
  }
  std::vector<int32_t> ids;
  BytePairEncoder::Workspace workspace;
  size_t at = 0;
  while (const auto match = added_.find_next(text, at, untrusted)) {
    encode_between(text.substr(at, match->range.begin - at), workspace, ids);
    ids.push_back(match->id);
    at = match->range.end;
    while (!untrusted.empty() && untrusted.front().end <= at) untrusted = untrusted.subspan(1);
  }
  encode_between(text.substr(at), workspace, ids);
  return ids;
}

void Tokenizer::check_ids(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size()) continue;
    fail(ErrorCode::kInvalidArgument, "token id ", id, " is not in the vocabulary: ids are 0 to ", vocab_size() - 1);
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_hidden) const {
  check_ids(ids);
  std::string joined;
  for (const int32_t id : ids) {
    if (!skip_hidden || !is_hidden(id)) joined.append(bytes(id));
  }
  std::string text;
  text.reserve(joined.size());
  append_utf8(joined, true, text);
  return text;
}

}  // namespace folio
