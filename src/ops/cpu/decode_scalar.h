// Weights widened to fp32 operands, in natural order; the decoded values carry their block's scale, which is exact.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd_scalar.h"

namespace folio::cpu::scalar {

struct FloatOperands {
  using Elem = float;
  using Operand = F;
  static constexpr int kElems = kLanes;
  static Operand load(const Elem* p) { return cpu::scalar::load(p); }
  static void store(Elem* p, Operand x) { cpu::scalar::store(p, x); }
  static F dot(F acc, Operand a, Operand b) { return fma(a, b, acc); }
};

struct NoScale {};

struct DecodeBf16 : FloatOperands {
  static constexpr int kChunk = 8;
  static constexpr int kVecs = 1;
  static constexpr int kChunkBytes = 16;
  static constexpr bool kSharedScale = true;
  static constexpr int64_t row_bytes(int64_t in) { return 2 * in; }
  using Scale = NoScale;
  static Scale scale(const uint8_t*, int64_t) { return {}; }
  static void decode(const uint8_t* codes, Scale, Operand (&out)[kVecs]) {
    uint16_t x[kLanes];
    __builtin_memcpy(x, codes, sizeof x);
    out[0] = load_bf16(x);
  }
};

struct Scaled {
  float factor;
};

inline float decode_e4m3(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  float value;
  if ((code & 0x7f) == 0x7f) {
    value = as_float(0x7fc00000);
  } else if (exponent == 0) {
    value = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    value = as_float((exponent - 7 + 127) << 23 | mantissa << 20);
  }
  return (code & 0x80) != 0 ? -value : value;
}

inline float decode_e2m1(uint8_t code) {
  constexpr float kValues[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return kValues[code & 15];
}

struct DecodeFp8 : FloatOperands {
  static constexpr int kChunk = 32;
  static constexpr int kVecs = 4;
  static constexpr int kChunkBytes = 32;
  static constexpr bool kSharedScale = true;
  static constexpr int64_t row_bytes(int64_t in) { return in; }
  using Scale = Scaled;
  static Scale scale(const uint8_t* scales, int64_t chunk) {
    return {as_float(static_cast<int32_t>(scales[chunk]) << 23)};
  }
  static void decode(const uint8_t* codes, Scale scale, Operand (&out)[kVecs]) {
    for (int k = 0; k < kChunk; ++k) out[k / kLanes].lane[k % kLanes] = decode_e4m3(codes[k]) * scale.factor;
  }
};

struct DecodeFp4 : FloatOperands {
  static constexpr int kChunk = 32;
  static constexpr int kVecs = 4;
  static constexpr int kChunkBytes = 16;
  static constexpr bool kSharedScale = false;
  static constexpr int64_t row_bytes(int64_t in) { return in / 2; }
  using Scale = Scaled;
  static Scale scale(const uint8_t* scales, int64_t chunk) {
    return {as_float(static_cast<int32_t>(scales[chunk]) << 23)};
  }
  static void decode(const uint8_t* codes, Scale scale, Operand (&out)[kVecs]) {
    for (int k = 0; k < kChunk; ++k) {
      const auto code = static_cast<uint8_t>(codes[k / 2] >> (4 * (k & 1)));
      out[k / kLanes].lane[k % kLanes] = decode_e2m1(code) * scale.factor;
    }
  }
};

// Where element k lies in the packed order.
constexpr int packed_position(Format, int k) { return k; }

// 64 values -> packed.
inline void store_packed(Format, const F (&x)[8], float* out) {
  for (int i = 0; i < 8; ++i) store(out + kLanes * i, x[i]);
}

}  // namespace folio::cpu::scalar
