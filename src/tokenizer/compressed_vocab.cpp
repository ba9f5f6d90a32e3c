#include "tokenizer/compressed_vocab.h"

#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

void check(UErrorCode status, const char* what) {
  if (U_FAILURE(status) != 0) fail(ErrorCode::kInternal, "ICU cannot ", what, ": ", u_errorName(status));
}

class TextNormalizer {
 public:
  TextNormalizer() {
    UErrorCode status = U_ZERO_ERROR;
    nfkc_ = icu::Normalizer2::getNFKCInstance(status);
    nfd_ = icu::Normalizer2::getNFDInstance(status);
    check(status, "load its normalisation data");
  }

  std::string normalize(std::string_view text) const {
    const icu::UnicodeString source =
        icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
    UErrorCode status = U_ZERO_ERROR;
    const icu::UnicodeString decomposed = nfd_->normalize(nfkc_->normalize(source, status), status);
    check(status, "normalise a token");
    std::string out;
    strip(fold_spaces(lower_case_without_marks(decomposed))).toUTF8String(out);
    return out;
  }

 private:
  // Letter by letter, so that a capital sigma becomes the same letter wherever it stands.
  static icu::UnicodeString lower_case_without_marks(const icu::UnicodeString& text) {
    icu::UnicodeString out;
    for (int32_t at = 0; at < text.length(); at = text.moveIndex32(at, 1)) {
      const UChar32 c = text.char32At(at);
      if ((U_GET_GC_MASK(c) & U_GC_M_MASK) != 0) continue;
      out.append(icu::UnicodeString(c).toLower(icu::Locale::getRoot()));
    }
    return out;
  }

  static icu::UnicodeString fold_spaces(const icu::UnicodeString& text) {
    icu::UnicodeString out;
    bool in_run = false;
    for (int32_t at = 0; at < text.length(); ++at) {
      const UChar c = text[at];
      const bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
      if (!space) out.append(c);
      if (space && !in_run) out.append(static_cast<UChar>(' '));
      in_run = space;
    }
    return out;
  }

  // Without outer White_Space; a text that is one space stays one. (The published chain parks that space as U+E000, so
  // a U+E000 in the text comes out as a space, too.)
  static icu::UnicodeString strip(icu::UnicodeString text) {
    constexpr UChar kParked = 0xE000;
    if (text == icu::UnicodeString(static_cast<UChar>(' '))) return text;
    int32_t begin = 0;
    int32_t end = text.length();
    while (begin < end && u_isUWhiteSpace(text[begin]) != 0) ++begin;
    while (begin < end && u_isUWhiteSpace(text[end - 1]) != 0) --end;
    return text.tempSubStringBetween(begin, end)
        .findAndReplace(icu::UnicodeString(kParked), icu::UnicodeString(static_cast<UChar>(' ')));
  }

  const icu::Normalizer2* nfkc_ = nullptr;
  const icu::Normalizer2* nfd_ = nullptr;
};

bool is_ordinary_text(std::string_view bytes) {
  return find_invalid_utf8(bytes) == bytes.size() && bytes.find(kReplacementCharacter) == std::string_view::npos;
}

}  // namespace

CompressedVocabulary compressed_vocabulary(const Tokenizer& tokenizer) {
  const TextNormalizer normalizer;
  CompressedVocabulary vocabulary;
  // One dictionary for both kinds of key: a spelling may coincide with a normalised text, and then they merge.
  std::unordered_map<std::string, int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.bytes(id);
    std::string key;
    if (is_ordinary_text(text)) {
      key = normalizer.normalize(text);
      if (key.empty()) key = text;
    } else {
      key = tokenizer.spelling(id);
    }
    const auto [entry, is_new] = ids.try_emplace(std::move(key), vocabulary.count);
    if (is_new) ++vocabulary.count;
    vocabulary.map.push_back(entry->second);
  }
  return vocabulary;
}

}  // namespace folio
