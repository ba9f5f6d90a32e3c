#include "tokenizer/char_class.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace folio {
namespace {

constexpr uint32_t kRuns[] = {
#include "tokenizer/char_class_runs.inc"
};

}  // namespace

CharClassTable::CharClassTable() {
  constexpr size_t kBlockSize = size_t{1} << kBlockBits;
  std::map<std::array<uint8_t, kBlockSize>, uint16_t> known;
  const uint32_t* run = std::begin(kRuns);
  for (size_t block = 0; block < block_.size(); ++block) {
    std::array<uint8_t, kBlockSize> classes;
    for (size_t i = 0; i < kBlockSize; ++i) {
      const uint32_t code_point = static_cast<uint32_t>(block << kBlockBits | i);
      while (run + 1 != std::end(kRuns) && run[1] >> 8 <= code_point) ++run;
      classes[i] = static_cast<uint8_t>(*run & 0xff);
    }
    const auto [entry, is_new] = known.try_emplace(classes, static_cast<uint16_t>(known.size()));
    if (is_new) classes_.insert(classes_.end(), classes.begin(), classes.end());
    block_[block] = entry->second;
  }
}

const CharClassTable& CharClassTable::instance() {
  static const CharClassTable table;
  return table;
}

}  // namespace folio
