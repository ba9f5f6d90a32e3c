// The compressed token ids of Engram (model spec 8.1).
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace folio {

// Token ids merged by normalised text: upper and lower case, accents, width and outer white space do not count.
struct CompressedVocabulary {
  std::vector<int32_t> map;  // [vocab_size] token id -> compressed id, 0..count-1 in order of first appearance
  int32_t count = 0;         // must equal the config's engram_compressed_vocab_size
};

// Takes some 100 ms for the published vocabulary. Throws Error(kInternal) when ICU fails.
CompressedVocabulary compressed_vocabulary(const Tokenizer& tokenizer);

}  // namespace folio
