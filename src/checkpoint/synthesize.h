// Random checkpoints in the published on-disk format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace folio {

struct SynthesizeOptions {
  std::string preset = "nano";
  uint64_t seed = 1;
  std::string out;      // directory, made when it is not there
  bool vision = false;  // with a small tower
  bool force = false;   // replace a checkpoint that is in `out`
  int threads = 0;      // 0: one per CPU
  // Number of compressed ids of a tokenizer.json (spec/model.md 8.1), for engram_compressed_vocab_size. Required.
  std::function<int64_t(const std::string& tokenizer_path)> compressed_vocab_size;
  // Called now and then with the payload bytes written so far and in all; may be empty. An exception from it ends the
  // work, removes unfinished shards and is passed on.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct SynthesizeResult {
  int64_t tensors = 0;
  int64_t bytes = 0;  // payload
  int shards = 0;
};

// Writes tokenizer.json, the shards in the published arrangement, their index and config.json, in this order, so that
// what an interrupted run leaves is no checkpoint. The bytes depend on preset, seed and vision alone. Throws
// Error(kInvalidArgument) for an unknown preset, a directory that is not empty (without `force`), cannot be written or
// is on a full disk.
SynthesizeResult synthesize_checkpoint(const SynthesizeOptions& options);

}  // namespace folio
