#include "model/engram_hash.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"

namespace folio {
namespace {

__extension__ using uint128 = unsigned __int128;

// numpy's SeedSequence for one small integer: a pool of four hashed words, expanded to the generator's state.
std::array<uint64_t, 4> seed_state(uint32_t entropy) {
  uint32_t pool[4];
  uint32_t constant = 0x43b0d7e5;
  const auto hash = [&constant](uint32_t value) {
    value ^= constant;
    constant *= 0x931e8875;
    value *= constant;
    return value ^ (value >> 16);
  };
  for (int i = 0; i < 4; ++i) pool[i] = hash(i == 0 ? entropy : 0);
  for (int source = 0; source < 4; ++source) {
    for (int target = 0; target < 4; ++target) {
      if (source == target) continue;
      const uint32_t mixed = 0xca01f9ddu * pool[target] - 0x4973f715u * hash(pool[source]);
      pool[target] = mixed ^ (mixed >> 16);
    }
  }
  std::array<uint64_t, 4> state{};
  constant = 0x8b51f9dd;
  for (unsigned i = 0; i < 8; ++i) {
    uint32_t word = pool[i % 4] ^ constant;
    constant *= 0x58f38ded;
    word *= constant;
    word ^= word >> 16;
    state[i / 2] |= uint64_t{word} << (32 * (i % 2));
  }
  return state;
}

// PCG64 (O'Neill 2014): a 128-bit linear congruential generator with an xor-shift and rotate output.
class Pcg64 {
 public:
  explicit Pcg64(uint32_t seed) {
    const auto words = seed_state(seed);
    increment_ = (((uint128{words[2]} << 64) | words[3]) << 1) | 1;
    step();
    state_ += (uint128{words[0]} << 64) | words[1];
    step();
  }

  uint64_t next() {
    step();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return (folded >> turn) | (folded << ((64 - turn) & 63));
  }

  // Uniform below `bound` (above 2^32): Lemire's multiplication with rejection.
  uint64_t below(uint64_t bound) {
    uint128 product = uint128{next()} * bound;
    const uint64_t threshold = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < threshold) product = uint128{next()} * bound;
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  void step() {
    constexpr uint128 kMultiplier = (uint128{0x2360ed051fc65da4} << 64) | 0x4385df649fccf645;
    state_ = state_ * kMultiplier + increment_;
  }

  uint128 state_ = 0;
  uint128 increment_ = 0;
};

}  // namespace

std::vector<int64_t> engram_multipliers(int32_t layer, int32_t max_ngram, int64_t compressed_vocab_size) {
  const int64_t bound = std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / compressed_vocab_size / 2);
  FOLIO_CHECK(bound > std::numeric_limits<uint32_t>::max(), "a compressed vocabulary of ", compressed_vocab_size);
  Pcg64 generator(10007u * static_cast<uint32_t>(layer));
  std::vector<int64_t> multipliers;
  for (int32_t lag = 0; lag < max_ngram; ++lag) {
    multipliers.push_back(2 * static_cast<int64_t>(generator.below(static_cast<uint64_t>(bound))) + 1);
  }
  return multipliers;
}

EngramHashTables::EngramHashTables(const Config& config, std::vector<int32_t> compressed)
    : num_layers_(static_cast<int32_t>(config.engram_layer_ids.size())),
      max_ngram_(config.engram_max_ngram_size),
      heads_(static_cast<int32_t>(config.engram_n_heads)),
      pad_(0),
      compressed_(std::move(compressed)) {
  if (num_layers_ == 0) return;
  FOLIO_CHECK(max_ngram_ <= kMaxEngramHistory + 1);
  pad_ = compressed_.at(static_cast<size_t>(config.engram_pad_token_id));
  for (const int layer : config.engram_layer_ids) {
    const auto drawn = engram_multipliers(layer, max_ngram_, config.engram_compressed_vocab_size);
    multipliers_.insert(multipliers_.end(), drawn.begin(), drawn.end());
  }
  for (const auto& layer : engram_primes(config)) {
    int64_t offset = 0;
    for (const int64_t prime : layer) {
      primes_.push_back(prime);
      offsets_.push_back(offset);
      offset += prime;
    }
  }
}

EngramHash EngramHashTables::view() const {
  return {.num_layers = num_layers_,
          .max_ngram = max_ngram_,
          .heads = heads_,
          .pad = pad_,
          .compressed = compressed_.data(),
          .multipliers = multipliers_.data(),
          .primes = primes_.data(),
          .offsets = offsets_.data()};
}

}  // namespace folio
