// Byte-pair encoding of one piece of text (protocol spec 1.6).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace folio {

// Merges adjacent symbols, lowest rank first and leftmost on ties, starting from single bytes. Immutable once built:
// any number of threads may encode, each with its own workspace.
class BytePairEncoder {
 public:
  // The symbols `left` and `right` become `result`; all are token ids. A merge's rank is its place in the list.
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };

  // Buffers that calls reuse; one per thread.
  struct Workspace {
    std::vector<int32_t> symbols;
    std::vector<uint32_t> ranks;
    std::vector<uint32_t> previous;
    std::vector<uint32_t> next;
    std::vector<uint64_t> heap;
  };

  BytePairEncoder() = default;

  // byte_ids[b] is the id of the token of the single byte b; bytes[i] are the bytes of token i, or empty for ids that
  // merges cannot reach. The pairs of `merges` are distinct, and there are fewer than 2^31. The strings behind `bytes`
  // outlive the encoder.
  BytePairEncoder(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges,
                  const std::vector<std::string_view>& bytes);

  // Appends the ids of `piece` (fewer than 2^32 bytes) to `out`. O(n log n) in its length.
  void encode(std::string_view piece, Workspace& workspace, std::vector<int32_t>& out) const;

 private:
  struct Pair {
    uint64_t key;
    uint32_t rank;
  };
  struct Word {
    uint32_t hash;
    int32_t id;
  };

  uint32_t rank_of(int32_t left, int32_t right) const;
  int32_t find_word(std::string_view piece) const;
  void merge(std::string_view piece, Workspace& workspace, std::vector<int32_t>& out) const;
  void merge_short(std::string_view piece, Workspace& workspace, std::vector<int32_t>& out) const;
  void merge_long(std::string_view piece, Workspace& workspace, std::vector<int32_t>& out) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Pair> pairs_;              // open addressing, a power of two
  std::vector<int32_t> results_;         // by rank
  std::vector<Word> words_;              // open addressing: tokens whose bytes encode to that one token
  std::vector<std::string_view> bytes_;  // by id
  size_t longest_word_ = 0;
};

}  // namespace folio
