// Cached rows as operands of the scalar kernels.
#pragma once

#include "ops/cache_rows.h"
#include "ops/cpu/decode_scalar.h"

namespace folio::cpu::scalar {

constexpr bool kReadsBf16Rows = false;

// A stored row of `dim` values.
inline void decode_cached(RowFormat format, const uint8_t* codes, const uint8_t* scales, int64_t dim, float* out) {
  for (int64_t d = 0; d < dim; ++d) {
    if (format == RowFormat::kBf16) {
      uint16_t x;
      __builtin_memcpy(&x, codes + 2 * d, sizeof x);
      out[d] = as_float(x << 16);
    } else if (format == RowFormat::kFp8Window) {
      out[d] = decode_e4m3(codes[d]) * as_float(static_cast<int32_t>(scales[d / 32]) << 23);
    } else if (format == RowFormat::kFp4Main) {
      out[d] = decode_e2m1(static_cast<uint8_t>(codes[d / 2] >> (4 * (d & 1)))) * decode_e4m3(scales[d / 16]);
    }
  }
}

inline void decode_fp8_row(const uint8_t* codes, const uint8_t* scales, int64_t dim, uint16_t* out) {
  for (int64_t d = 0; d < dim; d += 32) {
    F w[4];
    DecodeFp8::decode(codes + d, DecodeFp8::scale(scales, d / 32), w);
    for (int i = 0; i < 4; ++i) store_bf16(out + d + 8 * i, w[i]);
  }
}

// Attention's value product, a row at a time.
struct Values {
  using Elem = float;
  using Probability = float;  // on the bf16 grid
  static constexpr int kStep = 1;
  static constexpr int kDims = 8;
  static constexpr int kAccs = 1;
  using Operand = F;

  static void load(const Elem* const* rows, int64_t d, Operand (&v)[kAccs]) { v[0] = cpu::scalar::load(rows[0] + d); }
  static Operand splat(const Probability* p) { return cpu::scalar::splat(*p); }
  static F dot(F acc, Operand v, Operand p) { return fma(v, p, acc); }
  static void store_probabilities(Probability* p, F x) { store(p, round_bf16(x)); }
  static void store_block(uint16_t* out, F x, F) { store_bf16(out, x); }
};

// Eight FP8 index keys as operands of Values: operand d holds element d of every key, one key in each lane.
inline void load_fp8_keys(const uint8_t* const* codes, int64_t dim, F* out) {
  for (int64_t d = 0; d < dim; ++d) {
    for (int i = 0; i < kLanes; ++i) out[d].lane[i] = decode_e4m3(codes[i][d]);
  }
}

// Eight FP4 index keys as columns: column c holds bytes 4c .. 4c + 3 of every key, one key in each lane.
template <int kColumns>
struct KeyColumns {
  I even[kColumns], odd[kColumns];  // doubled E2M1 values of the low and high nibbles, plus 12, a byte each

  void load(const uint8_t* const* codes) {
    constexpr uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    for (int64_t c = 0; c < kColumns; ++c) {
      for (int i = 0; i < kLanes; ++i) {
        uint32_t low = 0, high = 0;
        for (int b = 0; b < 4; ++b) {
          const uint8_t byte = codes[i][4 * c + b];
          low |= static_cast<uint32_t>(kTable[byte & 15]) << (8 * b);
          high |= static_cast<uint32_t>(kTable[byte >> 4]) << (8 * b);
        }
        even[c].lane[i] = static_cast<int32_t>(low);
        odd[c].lane[i] = static_cast<int32_t>(high);
      }
    }
  }
  static I dot(I acc, I keys, int32_t query) {
    for (int i = 0; i < kLanes; ++i) {
      for (int b = 0; b < 4; ++b) {
        acc.lane[i] += static_cast<int32_t>((static_cast<uint32_t>(keys.lane[i]) >> (8 * b)) & 255u) *
                       static_cast<int8_t>((static_cast<uint32_t>(query) >> (8 * b)) & 255u);
      }
    }
    return acc;
  }
  static I finish(I acc) { return acc; }
};

}  // namespace folio::cpu::scalar
