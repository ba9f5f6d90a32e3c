// config.json as hostile bytes: what is accepted must have a schema of sane sizes.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "checkpoint/config.h"
#include "checkpoint/schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const folio::Config config = folio::parse_config({reinterpret_cast<const char*>(data), size}, "config.json");
    if (config.total_layers() * config.n_routed_experts > 4096) return 0;  // a schema that only takes long
    const int shards = folio::shard_count(config);
    int64_t total = 0;
    for (const folio::TensorSpec& spec : folio::make_schema(config)) {
      if (spec.bytes() <= 0 || spec.shard < 0 || spec.shard >= shards) std::abort();
      if (__builtin_add_overflow(total, spec.bytes(), &total)) std::abort();
    }
  } catch (const folio::Error&) {
    // The only exception that may leave.
  }
  return 0;
}
