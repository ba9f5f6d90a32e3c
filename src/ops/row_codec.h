// Cached rows as bytes: encoding from the unrounded values (once, spec 6.10) and decoding, shared by the host backends.
#pragma once

#include <cstring>

#include "base/error.h"
#include "numerics/bf16.h"
#include "numerics/quantize.h"
#include "ops/cache_rows.h"

namespace folio {

// Rows wider than this are refused by the checkpoint's configuration rules.
constexpr int64_t kMaxRowDim = 4096;

// The dim values of a stored row.
inline void decode_row(RowFormat format, const std::byte* codes, const std::byte* scales, int64_t dim, float* x) {
  const auto* c = reinterpret_cast<const uint8_t*>(codes);
  const auto* s = reinterpret_cast<const uint8_t*>(scales);
  switch (format) {
    case RowFormat::kBf16:
      for (int64_t i = 0; i < dim; ++i) x[i] = to_float(reinterpret_cast<const bf16*>(codes)[i]);
      return;
    case RowFormat::kFp8Window:
      return dequantize8(c, s, dim, x);
    case RowFormat::kFp4Main:
      return dequantize4_main(c, s, dim, x);
    case RowFormat::kFp4Index:
      return dequantize4_index(c, s, dim, x);
    case RowFormat::kFp8Index:
      return dequantize8_row(c, *s, dim, x);
  }
}

// The bytes of x under the quantiser of a packed format.
inline void quantize_row(RowFormat packed, const float* x, int64_t dim, uint8_t* codes, uint8_t* scales) {
  switch (packed) {
    case RowFormat::kFp8Window:
      return quantize8(x, dim, codes, scales);
    case RowFormat::kFp4Main:
      return quantize4_main(x, dim, codes, scales);
    case RowFormat::kFp4Index:
      return quantize4_index(x, dim, codes, scales);
    case RowFormat::kFp8Index:
      *scales = quantize8_row(x, dim, codes);
      return;
    case RowFormat::kBf16:
      FOLIO_CHECK(false, "bf16 has no quantiser");
  }
}

// Stores x rounded by the quantiser of `packed`, as bytes of that format or, when the plane is bf16, as the values of
// those bytes.
inline void encode_row(RowFormat packed, RowFormat plane, const float* x, int64_t dim, RowAddress out) {
  FOLIO_CHECK(dim <= kMaxRowDim && (plane == packed || plane == RowFormat::kBf16));
  if (plane == packed) {
    return quantize_row(packed, x, dim, reinterpret_cast<uint8_t*>(out.codes), reinterpret_cast<uint8_t*>(out.scales));
  }
  uint8_t codes[kMaxRowDim] = {};
  uint8_t scales[kMaxRowDim / 16] = {};
  float values[kMaxRowDim] = {};
  quantize_row(packed, x, dim, codes, scales);
  decode_row(packed, reinterpret_cast<const std::byte*>(codes), reinterpret_cast<const std::byte*>(scales), dim,
             values);
  for (int64_t i = 0; i < dim; ++i) reinterpret_cast<bf16*>(out.codes)[i] = to_bf16(values[i]);
}

}  // namespace folio
