#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>

#include "base/rng.h"

namespace folio {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kNoPair = std::numeric_limits<uint64_t>::max();
constexpr int32_t kNoToken = -1;
// Up to this many bytes a scan for the lowest rank beats a heap.
constexpr size_t kShortPiece = 64;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Slots for `entries` at most half full.
size_t table_size(size_t entries) { return std::bit_ceil(2 * entries + 2); }

uint32_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size();
  while (bytes.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
    bytes.remove_prefix(8);
  }
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    word |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  return static_cast<uint32_t>(mix64(hash ^ word));
}

}  // namespace

BytePairEncoder::BytePairEncoder(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges,
                                 const std::vector<std::string_view>& bytes)
    : byte_ids_(byte_ids), pairs_(table_size(merges.size()), Pair{kNoPair, kNoRank}), bytes_(bytes) {
  results_.reserve(merges.size());
  for (const Merge& merge : merges) {
    const uint64_t key = pair_key(merge.left, merge.right);
    size_t slot = mix64(key) & (pairs_.size() - 1);
    while (pairs_[slot].key != kNoPair) slot = (slot + 1) & (pairs_.size() - 1);
    pairs_[slot] = {key, static_cast<uint32_t>(results_.size())};
    results_.push_back(merge.result);
  }
  // Most pieces of ordinary text are one token. Those whose merges really end in that token are found by one look-up.
  words_.assign(table_size(bytes.size()), Word{0, kNoToken});
  Workspace workspace;
  std::vector<int32_t> ids;
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (bytes[id].empty()) continue;
    ids.clear();
    merge(bytes[id], workspace, ids);
    if (ids.size() != 1 || ids[0] != static_cast<int32_t>(id)) continue;
    const uint32_t hash = hash_bytes(bytes[id]);
    size_t slot = hash & (words_.size() - 1);
    while (words_[slot].id != kNoToken) slot = (slot + 1) & (words_.size() - 1);
    words_[slot] = {hash, ids[0]};
    longest_word_ = std::max(longest_word_, bytes[id].size());
  }
}

uint32_t BytePairEncoder::rank_of(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  size_t slot = mix64(key) & (pairs_.size() - 1);
  while (pairs_[slot].key != key && pairs_[slot].key != kNoPair) slot = (slot + 1) & (pairs_.size() - 1);
  return pairs_[slot].rank;
}

int32_t BytePairEncoder::find_word(std::string_view piece) const {
  const uint32_t hash = hash_bytes(piece);
  for (size_t slot = hash & (words_.size() - 1); words_[slot].id != kNoToken; slot = (slot + 1) & (words_.size() - 1)) {
    if (words_[slot].hash == hash && bytes_[static_cast<size_t>(words_[slot].id)] == piece) return words_[slot].id;
  }
  return kNoToken;
}

void BytePairEncoder::encode(std::string_view piece, Workspace& workspace, std::vector<int32_t>& out) const {
  if (piece.size() <= longest_word_) {
    const int32_t id = find_word(piece);
    if (id != kNoToken) {
      out.push_back(id);
      return;
    }
  }
  merge(piece, workspace, out);
}

void BytePairEncoder::merge(std::string_view piece, Workspace& workspace, std::vector<int32_t>& out) const {
  if (piece.size() <= kShortPiece) {
    merge_short(piece, workspace, out);
  } else {
    merge_long(piece, workspace, out);
  }
}

void BytePairEncoder::merge_short(std::string_view piece, Workspace& workspace, std::vector<int32_t>& out) const {
  std::vector<int32_t>& symbols = workspace.symbols;
  std::vector<uint32_t>& ranks = workspace.ranks;  // of (symbols[i], symbols[i + 1])
  symbols.clear();
  for (const char c : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  ranks.assign(symbols.size(), kNoRank);
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const size_t best = static_cast<size_t>(
        std::min_element(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(count)) - ranks.begin());
    if (ranks[best] == kNoRank) break;
    symbols[best] = results_[ranks[best]];
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i < count; ++i) ranks[i] = ranks[i + 1];
    ranks[best] = best + 1 < count ? rank_of(symbols[best], symbols[best + 1]) : kNoRank;
    if (best > 0) ranks[best - 1] = rank_of(symbols[best - 1], symbols[best]);
  }
  out.insert(out.end(), symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(count));
}

// The symbols are a linked list over the bytes; the heap holds rank << 32 | position of its left symbol, so that its
// top is the lowest rank and the leftmost among equals. An entry is stale when the pair at its position has another
// rank by now.
void BytePairEncoder::merge_long(std::string_view piece, Workspace& workspace, std::vector<int32_t>& out) const {
  const uint32_t size = static_cast<uint32_t>(piece.size());
  auto& [symbols, ranks, previous, next, heap] = workspace;
  symbols.resize(size);
  ranks.resize(size);
  previous.resize(size);
  next.resize(size);
  heap.clear();
  for (uint32_t i = 0; i < size; ++i) {
    symbols[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
    previous[i] = i - 1;  // wraps at 0: never followed
    next[i] = i + 1;
  }
  const auto update = [&](uint32_t at) {
    ranks[at] = next[at] < size ? rank_of(symbols[at], symbols[next[at]]) : kNoRank;
    return ranks[at] != kNoRank;
  };
  const auto entry = [&](uint32_t at) { return static_cast<uint64_t>(ranks[at]) << 32 | at; };
  const auto push = [&](uint32_t at) {
    if (!update(at)) return;
    heap.push_back(entry(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (uint32_t i = 0; i < size; ++i) {
    if (update(i)) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const uint32_t rank = static_cast<uint32_t>(top >> 32);
    const uint32_t at = static_cast<uint32_t>(top);
    if (ranks[at] != rank) continue;
    const uint32_t right = next[at];
    symbols[at] = results_[rank];
    ranks[right] = kNoRank;
    next[at] = next[right];
    if (next[at] < size) previous[next[at]] = at;
    push(at);
    if (at > 0) push(previous[at]);
  }
  for (uint32_t i = 0; i < size; i = next[i]) out.push_back(symbols[i]);
}

}  // namespace folio
