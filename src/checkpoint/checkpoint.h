// A checkpoint directory in the published format: config.json, tokenizer.json and safetensors shards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "tensor/view.h"

namespace folio {

// A directory whose tensors are exactly those of its config's schema. Weights stay in their published bytes, mapped
// read-only: opening reads headers, never payload, and a view is valid as long as the Checkpoint lives.
class Checkpoint {
 public:
  // Throws Error(kNotFound, kInvalidConfig, kInvalidCheckpoint). The message names every problem of the tensor set (20
  // of them spelled out): unreadable or damaged shards, tensors that are missing, unknown, mis-shaped, of another
  // dtype, in two shards or not where the index says.
  static Checkpoint open(const std::string& dir);

  const std::string& dir() const { return dir_; }
  const Config& config() const { return config_; }
  int64_t tensor_count() const { return static_cast<int64_t>(tensors_.size()); }
  // Payload of all tensors.
  int64_t total_bytes() const { return total_bytes_; }
  // Paths of the mapped files.
  std::vector<std::string> files() const;

  bool has(std::string_view name) const { return tensors_.contains(name); }
  // Throws Error(kInvalidCheckpoint) when there is no such tensor.
  TensorView tensor(std::string_view name) const;

 private:
  Checkpoint() = default;
  void advise() const;

  std::string dir_;
  Config config_;
  std::vector<SafetensorsFile> shards_;
  std::unordered_map<std::string_view, TensorView> tensors_;  // names live in the shards' headers
  int64_t total_bytes_ = 0;
};

}  // namespace folio
