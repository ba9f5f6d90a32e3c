// Cached rows as operands of the AVX512-BF16 kernels: attention rows widened to bf16, index keys to bytes.
#pragma once

#include "ops/cache_rows.h"
#include "ops/cpu/decode_avx512.h"

namespace folio::cpu::avx512bf16 {

// E2M1 * E4M3 as bf16 bits (exact): 16 products for each scale code.
struct E2M1ByE4M3 {
  alignas(64) uint16_t bits[256][16];
};
constexpr E2M1ByE4M3 make_e2m1_by_e4m3() {
  constexpr float magnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  E2M1ByE4M3 t{};
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    // value * 2^9, an integer
    const int scaled = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
    const float scale = static_cast<float>(scaled) * 0x1p-9f;
    for (int i = 0; i < 16; ++i) {
      const float product = (i & 8 ? -magnitude[i & 7] : magnitude[i & 7]) * scale;
      const auto u = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, product) >> 16);
      t.bits[code][i] = code == 0x7f ? uint16_t{0x7fc0} : u;
      t.bits[code + 128][i] = code == 0x7f ? uint16_t{0x7fc0} : static_cast<uint16_t>(u ^ 0x8000u);
    }
  }
  return t;
}
constexpr E2M1ByE4M3 kE2M1ByE4M3 = make_e2m1_by_e4m3();

constexpr bool kReadsBf16Rows = true;  // rows of bf16 planes are operands as they lie

// A stored row of `dim` (a multiple of 32) values in natural order. FP8: 14 instructions per 64 values, FP4: 8 per 32.
inline void decode_cached(RowFormat format, const uint8_t* codes, const uint8_t* scales, int64_t dim, uint16_t* out) {
  if (format == RowFormat::kBf16) {
    for (int64_t d = 0; d < dim; d += 32) _mm512_storeu_si512(out + d, _mm512_loadu_si512(codes + 2 * d));
  } else if (format == RowFormat::kFp8Window) {
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    int64_t d = 0;
    __m512i w[2];
    for (; d + 64 <= dim; d += 64) {
      DecodeFp8::decode(codes + d, DecodeFp8::scale(scales, d / 64), w);
      _mm512_storeu_si512(out + d, _mm512_permutex2var_epi64(w[0], first, w[1]));
      _mm512_storeu_si512(out + d + 32, _mm512_permutex2var_epi64(w[0], second, w[1]));
    }
    if (d < dim) {
      alignas(64) uint8_t tail[64] = {};
      __builtin_memcpy(tail, codes + d, 32);
      const uint8_t tail_scales[2] = {scales[d / 32], kMinScale};
      DecodeFp8::decode(tail, DecodeFp8::scale(tail_scales, 0), w);
      _mm512_storeu_si512(out + d, _mm512_permutex2var_epi64(w[0], first, w[1]));
    }
  } else if (format == RowFormat::kFp4Main) {
    const __m512i nibble = _mm512_set1_epi32(0x000f000f);
    const __m512i group = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
    for (int64_t d = 0; d < dim; d += 32) {
      const __m512i byte = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + d / 2)));
      // (byte | byte << 12) & 0x000f000f: both nibbles, each in a word
      const __m512i code = _mm512_ternarylogic_epi32(byte, _mm512_slli_epi32(byte, 12), nibble, 0xa8);
      const auto* low = reinterpret_cast<const __m256i*>(kE2M1ByE4M3.bits[scales[d / 16]]);
      const auto* high = reinterpret_cast<const __m256i*>(kE2M1ByE4M3.bits[scales[d / 16 + 1]]);
      const __m512i table =
          _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256(low)), _mm256_load_si256(high), 1);
      _mm512_storeu_si512(out + d, _mm512_permutexvar_epi16(_mm512_or_si512(code, group), table));
    }
  }
}

// As bf16 whatever the operands are.
inline void decode_fp8_row(const uint8_t* codes, const uint8_t* scales, int64_t dim, uint16_t* out) {
  decode_cached(RowFormat::kFp8Window, codes, scales, dim, out);
}

// Attention's value product: a step takes two rows, whose bf16 values are interleaved into pairs.
struct Values {
  using Elem = uint16_t;
  using Probability = uint16_t;     // bf16 bits
  static constexpr int kStep = 2;   // rows
  static constexpr int kDims = 32;  // dims of a block: two accumulators, see store_block
  static constexpr int kAccs = 2;
  using Operand = __m512i;

  static void load(const Elem* const* rows, int64_t d, Operand (&v)[kAccs]) {
    const __m512i a = _mm512_loadu_si512(rows[0] + d), b = _mm512_loadu_si512(rows[1] + d);
    v[0] = _mm512_unpacklo_epi16(a, b);
    v[1] = _mm512_unpackhi_epi16(a, b);
  }
  static Operand splat(const Probability* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  static F dot(F acc, Operand v, Operand p) { return Bf16Operands::dot(acc, v, p); }
  static void store_probabilities(Probability* p, F x) { store_bf16(p, x); }
  // Accumulator 0 holds dims 8i .. 8i + 3, accumulator 1 dims 8i + 4 .. 8i + 7.
  static void store_block(uint16_t* out, F low, F high) {
    const __m256i a = narrow_bf16(low), b = narrow_bf16(high);
    const __m256i even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

// Columns c .. c + 7 of sixteen rows of bytes: a column is a vector with four bytes of each row, byte 4c on. An 8 x 8
// transposition of dwords in each half: rows 0..7 below, 8..15 above.
inline void load_columns(const uint8_t* const* rows, int64_t c, __m512i (&columns)[8]) {
  __m512i a[8], b[8];
  for (int i = 0; i < 8; ++i) {
    const auto* low = reinterpret_cast<const __m256i*>(rows[i] + 4 * c);
    const auto* high = reinterpret_cast<const __m256i*>(rows[i + 8] + 4 * c);
    a[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(low)), _mm256_loadu_si256(high), 1);
  }
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i second = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (int i = 0; i < 4; ++i) {
    columns[i] = _mm512_permutex2var_epi64(a[i], first, a[i + 4]);
    columns[i + 4] = _mm512_permutex2var_epi64(a[i], second, a[i + 4]);
  }
}

// Sixteen FP8 index keys as operands of Values: operand i holds elements 2i and 2i + 1 of every key, one key in each
// lane.
inline void load_fp8_keys(const uint8_t* const* codes, int64_t dim, __m512i* out) {
  for (int64_t c = 0; c < dim / 4; c += 8) {
    __m512i columns[8];
    load_columns(codes, c, columns);
    for (int i = 0; i < 8; ++i, out += 2) {
      // Two keys of each four in either, four elements each.
      __m512i pairs[2];
      DecodeFp8::decode(columns[i], DecodeFp8::unit_scale(), pairs);
      const F a = from_bits(pairs[0]), b = from_bits(pairs[1]);
      out[0] = bits(_mm512_shuffle_ps(a, b, 0x88));
      out[1] = bits(_mm512_shuffle_ps(a, b, 0xdd));
    }
  }
}

// Sixteen FP4 index keys as columns: column c holds bytes 4c .. 4c + 3 of every key, one key in each lane.
template <int kColumns>
struct KeyColumns {
  __m512i even[kColumns], odd[kColumns];  // doubled E2M1 values of the low and high nibbles, plus 12

  void load(const uint8_t* const* codes) {
    for (int64_t c = 0; c + 8 <= kColumns; c += 8) {
      __m512i columns[8];
      load_columns(codes, c, columns);
      for (int i = 0; i < 8; ++i) widen(c + i, columns[i]);
    }
    for (int64_t c = kColumns / 8 * 8; c < kColumns; ++c) load_one(codes, c);
  }
  static I dot(I acc, I keys, int32_t query) { return _mm512_dpbusd_epi32(acc, keys, _mm512_set1_epi32(query)); }
  static I finish(I acc) { return acc; }

 private:
  void widen(int64_t c, __m512i bytes) {
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m512i low = _mm512_set1_epi8(15);
    even[c] = _mm512_shuffle_epi8(table, _mm512_and_si512(bytes, low));
    odd[c] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low));
  }
  void load_one(const uint8_t* const* codes, int64_t c) {
    alignas(64) int32_t column[16];
    for (int i = 0; i < 16; ++i) __builtin_memcpy(column + i, codes[i] + 4 * c, 4);
    widen(c, _mm512_load_si512(column));
  }
};

}  // namespace folio::cpu::avx512bf16
