// model.safetensors.index.json: which shard has which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace folio {

// Tensor name -> file name.
using WeightMap = std::map<std::string, std::string>;

// The weight_map of an index, which nobody vouches for; file names are taken as they are. Throws
// Error(kInvalidCheckpoint) naming `origin` when the text is no index.
WeightMap parse_weight_map(std::string_view json, const std::string& origin);

}  // namespace folio
