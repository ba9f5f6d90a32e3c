#include "ops/cpu/select.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>

namespace folio::cpu {
namespace {

template <typename Score>
constexpr int kBits = 8 * sizeof(Score);

// Scores side by side. A mask has sizeof(Score) bits for each of them.
template <typename Score>
struct Lanes;
template <>
struct Lanes<uint16_t> {
  static constexpr int64_t kCount = 16;
  static constexpr uint32_t kOne = 0x3;
  static __m256i splat(uint16_t x) { return _mm256_set1_epi16(static_cast<int16_t>(x)); }
  static __m256i shift(__m256i v, int bits) { return _mm256_srl_epi16(v, _mm_cvtsi32_si128(bits)); }
  static __m256i equal(__m256i a, __m256i b) { return _mm256_cmpeq_epi16(a, b); }
  static __m256i max(__m256i a, __m256i b) { return _mm256_max_epu16(a, b); }
};
template <>
struct Lanes<uint32_t> {
  static constexpr int64_t kCount = 8;
  static constexpr uint32_t kOne = 0xf;
  static __m256i splat(uint32_t x) { return _mm256_set1_epi32(static_cast<int32_t>(x)); }
  static __m256i shift(__m256i v, int bits) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(bits)); }
  static __m256i equal(__m256i a, __m256i b) { return _mm256_cmpeq_epi32(a, b); }
  static __m256i max(__m256i a, __m256i b) { return _mm256_max_epu32(a, b); }
};

// Calls take(i) for the scores that `test` (on vectors) lets through, and for the last few, in ascending order.
template <typename Score, typename Test, typename Take>
void for_hits(const Score* x, int64_t n, const Test& test, const Take& take) {
  using L = Lanes<Score>;
  int64_t i = 0;
  for (; i + L::kCount <= n; i += L::kCount) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    auto hits = static_cast<uint32_t>(_mm256_movemask_epi8(test(v)));
    while (hits != 0) {
      const int at = std::countr_zero(hits);
      take(i + at / static_cast<int>(sizeof(Score)));
      hits &= ~(L::kOne << at);
    }
  }
  for (; i < n; ++i) take(i);
}

// Counts of the byte `shift` bits up, of those scores whose bits above it are those of `prefix`.
template <typename Score>
void count_bytes(const Score* x, int64_t n, int shift, Score prefix, uint32_t (&counts)[256]) {
  // Four tables, so that equal neighbours do not wait for each other.
  uint32_t tables[4][256] = {};
  if (shift + 8 == kBits<Score>) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
      for (int t = 0; t < 4; ++t) ++tables[t][x[i + t] >> shift];
    }
    for (; i < n; ++i) ++tables[0][x[i] >> shift];
  } else {
    const auto high = static_cast<Score>(prefix >> (shift + 8));
    const __m256i wanted = Lanes<Score>::splat(high);
    for_hits(
        x, n, [&](__m256i v) { return Lanes<Score>::equal(Lanes<Score>::shift(v, shift + 8), wanted); },
        [&](int64_t i) { tables[i & 3][(x[i] >> shift) & 255] += x[i] >> (shift + 8) == high ? 1 : 0; });
  }
  for (int b = 0; b < 256; ++b) counts[b] = tables[0][b] + tables[1][b] + tables[2][b] + tables[3][b];
}

// The largest byte so that at least `wanted` counted values have it or a larger one; 0 if there are fewer. `above`
// becomes the number of values with a larger one.
int threshold_byte(const uint32_t (&counts)[256], int64_t wanted, int64_t& above) {
  above = 0;
  for (int b = 255; b > 0; --b) {
    if (above + counts[b] >= wanted) return b;
    above += counts[b];
  }
  return 0;
}

}  // namespace

template <typename Score>
void order_scores(Score* scores, int64_t n) {
  constexpr auto kSign = static_cast<Score>(Score{1} << (kBits<Score> - 1));
  constexpr Score kNever = kBits<Score> == 16 ? 0x007f : 0x007fffff;  // the order of -infinity
  for (int64_t i = 0; i < n; ++i) {
    const Score u = scores[i] == kSign ? Score{0} : scores[i];
    const auto flipped = static_cast<Score>((u & kSign) != 0 ? ~u : u | kSign);
    scores[i] = flipped <= kNever ? Score{0} : flipped;
  }
}

template <typename Score>
int64_t select_largest(const Score* ordered, int64_t n, int64_t k, int32_t* out) {
  if (k <= 0) return 0;
  Score threshold = 1;
  int64_t ties = n;
  if (n > k) {
    Score prefix = 0;
    ties = k;
    for (int shift = kBits<Score> - 8; shift >= 0; shift -= 8) {
      uint32_t counts[256];
      int64_t above = 0;
      count_bytes(ordered, n, shift, prefix, counts);
      prefix = static_cast<Score>(prefix | threshold_byte(counts, ties, above) << shift);
      ties -= above;
    }
    threshold = std::max(prefix, Score{1});
  }
  int64_t found = 0;
  const __m256i least = Lanes<Score>::splat(threshold);
  for_hits(
      ordered, n, [&](__m256i v) { return Lanes<Score>::equal(Lanes<Score>::max(v, least), v); },
      [&](int64_t i) {
        const Score score = ordered[i];
        if (score < threshold || (score == threshold && ties-- <= 0)) return;
        out[found++] = static_cast<int32_t>(i);
      });
  return found;
}

template void order_scores(uint16_t* scores, int64_t n);
template void order_scores(uint32_t* scores, int64_t n);
template int64_t select_largest(const uint16_t* ordered, int64_t n, int64_t k, int32_t* out);
template int64_t select_largest(const uint32_t* ordered, int64_t n, int64_t k, int32_t* out);

}  // namespace folio::cpu
