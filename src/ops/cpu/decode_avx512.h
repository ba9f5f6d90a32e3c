// Weights widened to operands of vdpbf16ps, in registers. An operand is 32 bf16 values; a decoder turns one chunk of a
// weight row into kVecs of them and fixes the order of k inside the chunk, which packed activations follow. Decoded
// FP8 and FP4 values carry their block's scale: E4M3 * 2^n and E2M1 * 2^n are exact in bf16.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd_avx512.h"

namespace folio::cpu::avx512bf16 {

// bf16 operands: 2 products per lane and instruction, fp32 sums.
struct Bf16Operands {
  using Elem = uint16_t;
  using Operand = __m512i;
  static constexpr int kElems = 32;
  static Operand load(const Elem* p) { return _mm512_loadu_si512(p); }
  static void store(Elem* p, Operand x) { _mm512_storeu_si512(p, x); }
  static F dot(F acc, Operand a, Operand b) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

struct DecodeBf16 : Bf16Operands {
  static constexpr int kChunk = 32;
  static constexpr int kVecs = 1;
  static constexpr int kChunkBytes = 64;
  static constexpr bool kSharedScale = true;
  static constexpr int64_t row_bytes(int64_t in) { return 2 * in; }
  struct Scale {};
  static Scale scale(const uint8_t*, int64_t) { return {}; }
  static void decode(const uint8_t* codes, Scale, Operand (&out)[kVecs]) { out[0] = _mm512_loadu_si512(codes); }
};

// E4M3 codes without sign -> bf16 bits of value * 2^-64, as two byte tables. Zero is the most negative int16: adding an
// exponent leaves it negative, and a maximum with 0 makes it +0. NaN is the largest: the saturating add keeps it.
struct E4M3Tables {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};
constexpr E4M3Tables make_e4m3_tables() {
  E4M3Tables t{};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> 3, mantissa = code & 7;
    unsigned bits = 0;
    if (code == 0) {
      bits = 0x8000;
    } else if (code == 0x7f) {
      bits = 0x7fff;
    } else {
      if (exponent == 0) {  // subnormal: mantissa * 2^-9
        exponent = 1;
        while (mantissa < 8) {
          mantissa <<= 1;
          --exponent;
        }
        mantissa &= 7;
      }
      bits = static_cast<unsigned>((exponent - 7 + 127 - 64) << 7 | mantissa << 4);
    }
    t.low[code] = static_cast<uint8_t>(bits & 0xff);
    t.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return t;
}
constexpr E4M3Tables kE4M3 = make_e4m3_tables();

// 64 codes: 2 look-ups per byte of the value, 12 instructions per 64 weights beside the products. Order of k: the
// 8-byte halves of each 16-byte lane, low halves first, as vpunpck leaves them.
struct DecodeFp8 : Bf16Operands {
  static constexpr int kChunk = 64;
  static constexpr int kVecs = 2;
  static constexpr int kChunkBytes = 64;
  static constexpr bool kSharedScale = true;  // of the 32 rows of a tile
  static constexpr int64_t row_bytes(int64_t in) { return in; }
  struct Scale {
    __m512i exponent;  // (byte - 63) << 7 for the words of each block of 32
  };
  static Scale scale(const uint8_t* scales, int64_t chunk) {
    const auto word = [&](int64_t i) { return static_cast<int16_t>((scales[i] - 63) * 128); };
    return {_mm512_mask_set1_epi16(_mm512_set1_epi16(word(2 * chunk)), 0xffff0000u, word(2 * chunk + 1))};
  }
  static Scale unit_scale() { return {_mm512_set1_epi16((127 - 63) * 128)}; }
  static void decode(const uint8_t* codes, Scale scale, Operand (&out)[kVecs]) {
    decode(_mm512_loadu_si512(codes), scale, out);
  }
  static void decode(__m512i c, Scale scale, Operand (&out)[kVecs]) {
    const __m512i low0 = _mm512_load_si512(kE4M3.low), low1 = _mm512_load_si512(kE4M3.low + 64);
    const __m512i high0 = _mm512_load_si512(kE4M3.high), high1 = _mm512_load_si512(kE4M3.high + 64);
    const __m512i zeros = _mm512_setzero_si512();
    const __m512i sign = _mm512_set1_epi16(INT16_MIN);
    const __m512i low = _mm512_permutex2var_epi8(low0, c, low1);
    const __m512i high = _mm512_permutex2var_epi8(high0, c, high1);
    const __m512i m0 = _mm512_adds_epi16(_mm512_unpacklo_epi8(low, high), scale.exponent);
    const __m512i m1 = _mm512_adds_epi16(_mm512_unpackhi_epi8(low, high), scale.exponent);
    // (sign & code in the high byte) | magnitude
    out[0] = _mm512_ternarylogic_epi32(_mm512_unpacklo_epi8(zeros, c), sign, _mm512_max_epi16(m0, zeros), 0xea);
    out[1] = _mm512_ternarylogic_epi32(_mm512_unpackhi_epi8(zeros, c), sign, _mm512_max_epi16(m1, zeros), 0xea);
  }
};

// E2M1 codes -> bf16 bits of value * 2^63, twice, so that the index bit above the nibble does not matter. Both zeros
// are +0 here: a saturating subtraction of an exponent leaves 0.
struct E2M1Table {
  alignas(64) uint16_t bits[32];
};
constexpr E2M1Table make_e2m1_table() {
  constexpr unsigned magnitude[8] = {0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0};
  E2M1Table t{};
  for (int i = 0; i < 32; ++i) {
    if ((i & 7) == 0) continue;
    t.bits[i] = static_cast<uint16_t>((magnitude[i & 7] + (63u << 7)) | ((i & 8) != 0 ? 0x8000u : 0u));
  }
  return t;
}
constexpr E2M1Table kE2M1 = make_e2m1_table();

// 128 codes in 64 bytes: 14 instructions per 128 weights beside the products. Word i of the chunk holds elements 4i ..
// 4i + 3; operand j takes element j of every word. A block of 32 is a 16-byte lane.
struct DecodeFp4 : Bf16Operands {
  static constexpr int kChunk = 128;
  static constexpr int kVecs = 4;
  static constexpr int kChunkBytes = 64;
  static constexpr bool kSharedScale = false;
  static constexpr int64_t row_bytes(int64_t in) { return in / 2; }
  struct Scale {
    __m512i exponent;  // (kMaxScale - byte) << 7 for the words of each lane
  };
  static Scale scale(const uint8_t* scales, int64_t chunk) {
    int32_t four;
    __builtin_memcpy(&four, scales + 4 * chunk, sizeof four);
    // Byte i of the four in the high byte of every word of lane i.
    const __m512i spread =
        _mm512_set_epi64(static_cast<int64_t>(0x0380038003800380), static_cast<int64_t>(0x0380038003800380),
                         static_cast<int64_t>(0x0280028002800280), static_cast<int64_t>(0x0280028002800280),
                         static_cast<int64_t>(0x0180018001800180), static_cast<int64_t>(0x0180018001800180),
                         static_cast<int64_t>(0x0080008000800080), static_cast<int64_t>(0x0080008000800080));
    const __m512i bytes = _mm512_srli_epi16(_mm512_shuffle_epi8(_mm512_set1_epi32(four), spread), 1);
    return {_mm512_sub_epi16(_mm512_set1_epi16(kMaxScale << 7), bytes)};
  }
  static void decode(const uint8_t* codes, Scale scale, Operand (&out)[kVecs]) {
    const __m512i table = _mm512_load_si512(kE2M1.bits);
    const __m512i c = _mm512_loadu_si512(codes);
    out[0] = _mm512_subs_epu16(_mm512_permutexvar_epi16(c, table), scale.exponent);
    out[1] = _mm512_subs_epu16(_mm512_permutexvar_epi16(_mm512_srli_epi16(c, 4), table), scale.exponent);
    out[2] = _mm512_subs_epu16(_mm512_permutexvar_epi16(_mm512_srli_epi16(c, 8), table), scale.exponent);
    out[3] = _mm512_subs_epu16(_mm512_permutexvar_epi16(_mm512_srli_epi16(c, 12), table), scale.exponent);
  }
};

// Where element k of a chunk lies in the packed order.
constexpr int packed_position(Format format, int k) {
  switch (format) {
    case Format::kFp8: {
      const int in_chunk = k % 64;
      return k - in_chunk + (in_chunk / 8 % 2) * 32 + in_chunk / 16 * 8 + in_chunk % 8;
    }
    case Format::kFp4: {
      const int in_chunk = k % 128;
      return k - in_chunk + in_chunk % 4 * 32 + in_chunk / 4;
    }
    case Format::kBf16:
      break;
  }
  return k;
}

// 128 values, natural order, on the bf16 grid -> packed.
inline void store_packed(Format format, const F (&x)[8], uint16_t* out) {
  __m512i v[4];
  for (int i = 0; i < 4; ++i) {
    // The high words of both; the values lie on the bf16 grid.
    alignas(64) static constexpr uint16_t kHigh[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    v[i] = _mm512_permutex2var_epi16(bits(x[2 * i]), _mm512_load_si512(kHigh), bits(x[2 * i + 1]));
  }
  if (format == Format::kFp8) {
    for (int i = 0; i < 2; ++i) {
      const __m512i a = v[2 * i], b = v[2 * i + 1];
      const __m512i low = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13),
                    high = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
      v[2 * i] = _mm512_permutex2var_epi64(a, low, b);
      v[2 * i + 1] = _mm512_permutex2var_epi64(a, high, b);
    }
  }
  if (format == Format::kFp4) {
    // Words 0, 4, 8 .. of a pair of vectors, in both halves.
    const __m512i quads = _mm512_set_epi16(60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0, 60, 56, 52, 48,
                                           44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    __m512i w[4];
    for (int j = 0; j < 4; ++j) {
      const __m512i index = _mm512_add_epi16(quads, _mm512_set1_epi16(static_cast<int16_t>(j)));
      const __m512i ab = _mm512_permutex2var_epi16(v[0], index, v[1]);
      const __m512i cd = _mm512_permutex2var_epi16(v[2], index, v[3]);
      w[j] = _mm512_mask_blend_epi64(0xf0, ab, cd);
    }
    for (int j = 0; j < 4; ++j) v[j] = w[j];
  }
  for (int i = 0; i < 4; ++i) _mm512_storeu_si512(out + 32 * i, v[i]);
}

}  // namespace folio::cpu::avx512bf16
