// Element types, under the names of the safetensors header.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace folio {

enum class DType : uint8_t { kF32, kBF16, kF8E4M3, kF8E8M0, kI8, kU8, kI32, kI64 };

// Bytes of one element. I8 and U8 weights hold two FP4 codes in an element.
constexpr int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  return 0;
}

// The tag as the safetensors header writes it, "BF16" for instance.
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E8M0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "?";
}

// The dtype of a header tag, or nothing for a tag that no part of a checkpoint uses.
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType dtype :
       {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kF8E8M0, DType::kI8, DType::kU8, DType::kI32, DType::kI64}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace folio
