#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace folio {
namespace {

// The 256 bytes as ids 0..255 and random merges of what is there already, over few letters, so that they interact.
struct RandomVocabulary {
  RandomVocabulary(uint64_t seed, size_t merge_count) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_ids[static_cast<size_t>(byte)] = byte;
      texts.emplace_back(1, static_cast<char>(byte));
    }
    std::vector<int32_t> usable{'a', 'b', 'c'};
    std::map<std::string, int32_t> ids;
    for (uint64_t draw = 0; merges.size() < merge_count; ++draw) {
      const int32_t left = usable[random_bits(seed, draw, 0) % usable.size()];
      const int32_t right = usable[random_bits(seed, draw, 1) % usable.size()];
      if (ranks.contains({left, right})) continue;
      const std::string text = texts[static_cast<size_t>(left)] + texts[static_cast<size_t>(right)];
      if (text.size() > 24) continue;
      const auto [entry, is_new] = ids.try_emplace(text, static_cast<int32_t>(texts.size()));
      if (is_new) {
        texts.push_back(text);
        usable.push_back(entry->second);
      }
      ranks[{left, right}] = merges.size();
      merges.push_back({left, right, entry->second});
    }
    // Later merges may have low ranks' products only by chance: shuffle, so that ranks and sizes are unrelated.
    for (size_t i = merges.size(); i > 1; --i) std::swap(merges[i - 1], merges[random_bits(seed, i, 2) % i]);
    for (size_t rank = 0; rank < merges.size(); ++rank) ranks[{merges[rank].left, merges[rank].right}] = rank;
  }

  BytePairEncoder encoder() const {
    return BytePairEncoder(byte_ids, merges, std::vector<std::string_view>(texts.begin(), texts.end()));
  }

  // The definition: merge the pair of lowest rank, leftmost on ties, until none is left.
  std::vector<int32_t> reference(const std::string& piece) const {
    std::vector<int32_t> symbols;
    for (const char c : piece) symbols.push_back(byte_ids[static_cast<unsigned char>(c)]);
    while (true) {
      size_t best = symbols.size();
      size_t best_rank = merges.size();
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks.find({symbols[i], symbols[i + 1]});
        if (found == ranks.end() || found->second >= best_rank) continue;
        best = i;
        best_rank = found->second;
      }
      if (best == symbols.size()) return symbols;
      symbols[best] = merges[best_rank].result;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
  }

  std::array<int32_t, 256> byte_ids;
  std::vector<std::string> texts;
  std::vector<BytePairEncoder::Merge> merges;
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
};

TEST(BytePairEncoder, EqualsItsDefinitionOnRandomMerges) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const RandomVocabulary vocabulary(seed, 1 + seed * 5);
    const BytePairEncoder encoder = vocabulary.encoder();
    BytePairEncoder::Workspace workspace;
    for (uint64_t round = 0; round < 300; ++round) {
      // Around the border between the short and the long algorithm, and well beyond it.
      const uint64_t size = 1 + random_bits(seed, round, 0) % (round % 10 == 0 ? 400 : 90);
      std::string piece;
      for (uint64_t i = 1; i <= size; ++i) piece.push_back("abcd"[random_bits(seed, round, i) % (round % 3 + 2)]);
      std::vector<int32_t> ids;
      encoder.encode(piece, workspace, ids);
      ASSERT_EQ(ids, vocabulary.reference(piece)) << "seed " << seed << ": " << piece;
    }
  }
}

// A token's own text need not encode to that token: there is no short cut past the merges.
TEST(BytePairEncoder, AnUnreachableTokenIsNotUsed) {
  RandomVocabulary vocabulary(0, 0);
  vocabulary.texts.insert(vocabulary.texts.end(), {"ab", "bc", "abc"});
  vocabulary.merges = {{'b', 'c', 257}, {'a', 'b', 256}, {256, 'c', 258}};  // bc comes first: a + bc
  BytePairEncoder::Workspace workspace;
  std::vector<int32_t> ids;
  vocabulary.encoder().encode("abc", workspace, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{'a', 257}));
}

TEST(BytePairEncoder, LeftmostOnTies) {
  RandomVocabulary vocabulary(0, 0);
  vocabulary.texts.push_back("aa");
  vocabulary.merges = {{'a', 'a', 256}};
  const BytePairEncoder encoder = vocabulary.encoder();
  BytePairEncoder::Workspace workspace;
  for (const size_t size : {3u, 101u}) {
    std::vector<int32_t> ids;
    encoder.encode(std::string(size, 'a'), workspace, ids);
    std::vector<int32_t> expected(size / 2, 256);
    expected.push_back('a');
    EXPECT_EQ(ids, expected);
  }
}

}  // namespace
}  // namespace folio
