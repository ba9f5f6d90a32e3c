// safetensors files and, when the input begins with a brace, shard indexes as hostile bytes.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// What is accepted must be safe to view: inside the file, aligned, back to back.
void check(const folio::SafetensorsHeader& header, size_t size) {
  int64_t at = header.tensors.empty() ? static_cast<int64_t>(size) : header.tensors.front().offset;
  for (const folio::SafetensorsEntry& entry : header.tensors) {
    require(entry.offset == at && entry.bytes() >= 0);
    require(entry.offset % folio::dtype_size(entry.dtype) == 0);
    at += entry.bytes();
  }
  require(at == static_cast<int64_t>(size));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    if (size > 0 && data[0] == '{') {
      folio::parse_weight_map({reinterpret_cast<const char*>(data), size}, "index.json");
    } else {
      check(folio::parse_safetensors(std::as_bytes(std::span(data, size)), "a.safetensors"), size);
    }
  } catch (const folio::Error&) {
    // The only exception that may leave.
  }
  return 0;
}
