// Golden cases on disk: a checkpoint, tokens, and what the oracle computed from them (make_goldens.py).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace folio::golden {

struct GoldenCase {
  std::string name;
  std::string folder;
  bool fp8_index = false;                            // the format of the index plane
  std::optional<std::pair<int64_t, int64_t>> image;  // positions A .. B-1 are an image span

  std::string checkpoint_dir() const { return folder + "/checkpoint"; }
};

// The cases in `folder`/cases.json; `quick`: those for sanitizer builds. Throws when the folder holds none.
std::vector<GoldenCase> load_cases(const std::string& folder, bool quick);

// The oracle's tensors of a case under the keys of tools/oracle/README.md.
class GoldenFile {
 public:
  explicit GoldenFile(const GoldenCase& golden_case);

  bool has(const std::string& key) const { return views_.contains(key); }
  const Shape& shape(const std::string& key) const { return view(key).shape; }
  template <typename T>
  std::span<const T> get(const std::string& key) const {
    const TensorView& tensor = view(key);
    FOLIO_CHECK(dtype_size(tensor.dtype) == static_cast<int64_t>(sizeof(T)), key);
    FOLIO_CHECK(reinterpret_cast<uintptr_t>(tensor.data) % alignof(T) == 0, key);
    return {tensor.as<T>(), static_cast<size_t>(tensor.shape.elements())};
  }

 private:
  const TensorView& view(const std::string& key) const;

  SafetensorsFile file_;
  std::unordered_map<std::string, TensorView> views_;
};

}  // namespace folio::golden
