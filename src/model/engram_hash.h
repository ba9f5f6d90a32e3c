// Constants of the n-gram hash: multipliers, bucket primes and the compressed vocabulary (spec/model.md 8.1 to 8.3).
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config.h"
#include "ops/step.h"

namespace folio {

// Multipliers of one Engram layer, [max_ngram]: odd numbers drawn by numpy's default generator (PCG64) from the seed
// 10007 * layer, below a bound that keeps products of compressed ids within 63 bits.
std::vector<int64_t> engram_multipliers(int32_t layer, int32_t max_ngram, int64_t compressed_vocab_size);

// Owns the arrays that an EngramHash points to. Movable; the views stay valid.
class EngramHashTables {
 public:
  // `compressed` maps every token id to its compressed id.
  EngramHashTables(const Config& config, std::vector<int32_t> compressed);

  EngramHash view() const;

 private:
  int32_t num_layers_, max_ngram_, heads_, pad_;
  std::vector<int32_t> compressed_;
  std::vector<int64_t> multipliers_, primes_, offsets_;
};

}  // namespace folio
