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
  }
}

// Stores x rounded by the quantiser of `packed` (a packed format), as bytes of that format or, when the plane is bf16,
// as the values of those bytes.
inline void encode_row(RowFormat packed, RowFormat plane, const float* x, int64_t dim, RowAddress out) {
  FOLIO_CHECK(dim <= kMaxRowDim && (plane == packed || plane == RowFormat::kBf16));
  uint8_t codes[kMaxRowDim];
  uint8_t scales[kMaxRowDim / 16];
  FOLIO_CHECK(packed != RowFormat::kBf16, "no quantiser named");
  if (packed == RowFormat::kFp8Window) {
    quantize8(x, dim, codes, scales);
  } else if (packed == RowFormat::kFp4Main) {
    quantize4_main(x, dim, codes, scales);
  } else {
    quantize4_index(x, dim, codes, scales);
  }
  if (plane == packed) {
    std::memcpy(out.codes, codes, static_cast<size_t>(code_bytes(packed, dim)));
    std::memcpy(out.scales, scales, static_cast<size_t>(scale_bytes(packed, dim)));
    return;
  }
  float values[kMaxRowDim];
  decode_row(packed, reinterpret_cast<const std::byte*>(codes), reinterpret_cast<const std::byte*>(scales), dim,
             values);
  for (int64_t i = 0; i < dim; ++i) reinterpret_cast<bf16*>(out.codes)[i] = to_bf16(values[i]);
}

}  // namespace folio
