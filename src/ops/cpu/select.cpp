#include "ops/cpu/select.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace folio::cpu {
namespace {

constexpr uint16_t kNever = 0x007f;  // the order of -infinity

// Counts of one byte of those scores whose high byte is `high` (or of all their high bytes, high < 0).
void count_bytes(const uint16_t* x, int64_t n, int high, uint32_t (&counts)[256]) {
  // Four tables, so that equal neighbours do not wait for each other.
  uint32_t tables[4][256] = {};
  if (high < 0) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
      for (int t = 0; t < 4; ++t) ++tables[t][x[i + t] >> 8];
    }
    for (; i < n; ++i) ++tables[0][x[i] >> 8];
  } else {
    const __m256i wanted = _mm256_set1_epi16(static_cast<int16_t>(high));
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
      auto hits = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi16(_mm256_srli_epi16(v, 8), wanted)));
      for (; hits != 0; hits &= hits - 1, hits &= hits - 1) ++tables[0][x[i + std::countr_zero(hits) / 2] & 255];
    }
    for (; i < n; ++i) tables[0][x[i] & 255] += x[i] >> 8 == high ? 1 : 0;
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

void order_scores(uint16_t* scores, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t u = scores[i] == 0x8000 ? uint16_t{0} : scores[i];
    const auto flipped = static_cast<uint16_t>((u & 0x8000) != 0 ? ~u : u | 0x8000);
    scores[i] = flipped <= kNever ? uint16_t{0} : flipped;
  }
}

int64_t select_largest(const uint16_t* ordered, int64_t n, int64_t k, int32_t* out) {
  if (k <= 0) return 0;
  uint16_t threshold = 1;
  int64_t ties = n;
  if (n > k) {
    uint32_t counts[256];
    int64_t above = 0, above_low = 0;
    count_bytes(ordered, n, -1, counts);
    const int high = threshold_byte(counts, k, above);
    count_bytes(ordered, n, high, counts);
    const int low = threshold_byte(counts, k - above, above_low);
    threshold = std::max(static_cast<uint16_t>(high << 8 | low), uint16_t{1});
    ties = k - above - above_low;
  }
  int64_t found = 0;
  const auto take = [&](int64_t i) {
    const uint16_t score = ordered[i];
    if (score < threshold || (score == threshold && ties-- <= 0)) return;
    out[found++] = static_cast<int32_t>(i);
  };
  const __m256i least = _mm256_set1_epi16(static_cast<int16_t>(threshold));
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ordered + i));
    auto hits = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi16(_mm256_max_epu16(v, least), v)));
    for (; hits != 0; hits &= hits - 1, hits &= hits - 1) take(i + std::countr_zero(hits) / 2);
  }
  for (; i < n; ++i) take(i);
  return found;
}

}  // namespace folio::cpu
