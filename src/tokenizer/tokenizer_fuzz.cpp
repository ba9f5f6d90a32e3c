// tokenizer.json as hostile bytes, and random text through whatever tokenizer comes out of it. The input is the file,
// or the file, a zero byte and a text.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "tokenizer/compressed_vocab.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

std::string_view kDefaultText = "Hello, \u4E16\u754C 1234 <think>\n\n \U0001F600 don't";

void round_trip(const folio::Tokenizer& tokenizer, std::string_view text) {
  const size_t third = text.size() / 3;
  const folio::ByteRange untrusted[] = {{third, 2 * third}};
  for (const auto& ids :
       {tokenizer.encode(text), tokenizer.encode(text, folio::Special::kAsText), tokenizer.encode(text, untrusted)}) {
    folio::Detokenizer detokenizer(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) streamed += detokenizer.push(id);
    require(streamed + detokenizer.flush() == text);
    require(tokenizer.decode(ids) == text);
  }
  for (const int32_t id : tokenizer.encode(text, folio::Special::kAsText)) require(!tokenizer.is_added(id));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  try {
    const folio::Tokenizer tokenizer = folio::Tokenizer::parse(input.substr(0, end), "fuzz");
    round_trip(tokenizer, kDefaultText);
    const folio::CompressedVocabulary vocabulary = folio::compressed_vocabulary(tokenizer);
    require(vocabulary.count > 0 && vocabulary.map.size() == static_cast<size_t>(tokenizer.vocab_size()));
    if (end < input.size()) round_trip(tokenizer, input.substr(end + 1));
  } catch (const folio::Error& error) {
    require(error.code() == folio::ErrorCode::kInvalidTokenizer || error.code() == folio::ErrorCode::kInvalidArgument);
  }
  return 0;
}
