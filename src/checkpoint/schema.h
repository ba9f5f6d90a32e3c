// The tensors that a config requires: names, dtypes, shapes and shards (spec/model.md 3).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace folio {

// What a tensor belongs to, for the sums of `folio inspect`.
enum class Part {
  kEmbedding,          // embed and image delimiters
  kHead,               // LM head and final norm
  kAttention,          // projections, norms and sinks of attention
  kCompressor,         // compressors and index keys of KV owners
  kIndexer,            // index queries and head weights
  kRouter,             // expert gates
  kRoutedExperts,      //
  kSharedExperts,      //
  kHyperConnections,   // mHC
  kNorms,              // block norms
  kEngramTables,       //
  kEngramProjections,  //
  kDraft,              // everything of mtp.*
  kVision,             // tower and aligner
};
constexpr int kPartCount = 14;
std::string_view part_name(Part part);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;    // as stored: an FP4 matrix [rows, columns] has shape [rows, columns / 2]
  int shard = 0;  // number of its shard in the published arrangement, from 0
  Part part = Part::kEmbedding;

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
};

// All tensors of a config, scales included. The published config has 96,085 of 510,286,023,000 bytes.
std::vector<TensorSpec> make_schema(const Config& config);

// Shards of the published arrangement: vision (if there is any), embedding, one per layer, head, one per draft stage,
// one per Engram layer.
int shard_count(const Config& config);

// "model-00001-of-00048.safetensors" for shard 0 of 48.
std::string shard_file_name(int shard, int count);

}  // namespace folio
