// Values of random checkpoints: noise of the scale that trained weights have, so that generation is worth looking at
// and comparisons mean something.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/schema.h"

namespace folio {

constexpr int64_t kTile = 32;  // values in a row, and rows of an FP8 matrix, that share a scale

// Deterministic tensors: each value depends on (seed, tensor name, position) alone. LM head and Markov head share a
// fixed random successor map v -> next(v), which makes target and draft agree often.
class RandomWeights {
 public:
  RandomWeights(const Config& config, uint64_t seed);

  // Stored bytes of rows [first, first + count) of a matrix, or of one tensor of rank 1 taken as a column. `scales`
  // receives the matching rows of the .scale tensor when the weight is quantised: rows of 32 x 32 tiles for FP8 (then
  // `first` is a multiple of 32), one row per row for FP4 and Engram tables. Safe to call from several threads.
  void rows(const TensorSpec& weight, int64_t first, int64_t count, std::vector<std::byte>& bytes,
            std::vector<std::byte>& scales) const;

  // Whether `name` is a scale that rows() of its weight makes.
  static bool is_scale(const TensorSpec& spec) { return spec.dtype == DType::kF8E8M0; }

 private:
  // value = mean + scale * noise, unless the tensor is one of the special ones.
  struct Recipe {
    enum class Kind { kPlain, kEmbedding, kHead, kMarkovHead, kHyperBase, kHyperScale } kind = Kind::kPlain;
    float mean = 0;
    float scale = 1;
  };

  Recipe recipe_of(std::string_view name, int64_t fan_in) const;
  void noise(std::string_view name, int64_t first, std::span<float> out) const;
  void embedding_noise(int64_t first_row, int64_t count, std::span<float> out) const;
  void values(std::string_view name, int64_t columns, int64_t first_row, int64_t count, std::span<float> out) const;

  const Config& config_;
  uint64_t seed_;
  std::vector<int64_t> predecessor_;  // v with next(v) = index
};

}  // namespace folio
