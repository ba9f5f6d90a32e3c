#include "engine/profile_identity.h"

#include <xxhash.h>

#include <cstdio>
#include <cstring>

#include "base/memory.h"
#include "base/processor.h"
#include "base/thread_pool.h"
#include "ops/cpu/isa.h"

namespace folio {
namespace {

class Hash {
 public:
  Hash() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    char digits[33];
    std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return digits;
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

std::string config_hash(const Checkpoint& checkpoint) {
  Hash hash;
  hash.add(MappedFile(checkpoint.dir() + "/config.json").bytes());
  return hash.text();
}

// The headers of the shards, which are there with and without an index file: names, dtypes, shapes and places.
std::string tensors_hash(const Checkpoint& checkpoint) {
  Hash hash;
  for (const std::string& path : checkpoint.files()) {
    const MappedFile file(path);
    uint64_t header = 0;  // little-endian, as this machine is; checked when the checkpoint was opened
    std::memcpy(&header, file.bytes().data(), sizeof header);
    hash.add(file.bytes().first(sizeof header + header));
  }
  return hash.text();
}

}  // namespace

ProfileIdentity profile_identity(const ModelFiles& files, const RunnerOptions& options, const std::string& version) {
  const bool reference = options.isa == "ref";
  const int threads = reference ? 1 : options.threads > 0 ? options.threads : allowed_processors();
  return {{"config", config_hash(files.checkpoint)},
          {"tensors", tensors_hash(files.checkpoint)},
          {"model_type", "deepseek_v41"},
          {"tensor_parallel_size", "1"},
          {"kv_cache_dtype", options.cache_format.packed ? "fp4" : "bf16"},
          {"index_cache_dtype", options.cache_format.fp8_index ? "fp8" : "fp4"},
          {"processor", processor_name()},
          {"isa", reference ? "ref" : cpu::isa_name(cpu::choose_isa(options.isa))},
          {"threads", std::to_string(threads)},
          {"folio", version}};
}

}  // namespace folio
