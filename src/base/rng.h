// Counter-based random numbers: the draw depends on (seed, stream, counter) alone, never on who drew before.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace folio {

// A bijective mix of 64 bits (the finaliser of SplitMix64, Steele et al. 2014).
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// 64 random bits of draw `counter` in `stream` of `seed`.
constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  return mix64(mix64(mix64(seed) ^ stream) ^ counter);
}

// Uniform double in (0, 1): never 0, never 1.
constexpr double random_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  return (static_cast<double>(random_bits(seed, stream, counter) >> 12) + 0.5) * 0x1p-52;
}

// Standard normal draw (Box-Muller on two uniforms of the same counter).
inline double random_normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  const double radius = std::sqrt(-2.0 * std::log(random_uniform(seed, stream, 2 * counter)));
  return radius * std::cos(2.0 * std::numbers::pi * random_uniform(seed, stream, 2 * counter + 1));
}

}  // namespace folio
