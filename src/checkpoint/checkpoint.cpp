#include "checkpoint/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/schema.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/text.h"

namespace folio {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxShards = 4096;
constexpr size_t kReasonsShown = 20;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

// A file of the directory itself: no path that leads anywhere else.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name.size() < 256 && name[0] != '.' && name.ends_with(".safetensors") &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '/' && c != '\\'; });
}

// What is wrong with the tensor set of one directory.
class TensorSetCheck {
 public:
  explicit TensorSetCheck(std::string dir) : dir_(std::move(dir)) {}

  template <typename... Parts>
  void note(const Parts&... parts) {
    reasons_.push_back(concat(parts...));
  }
  void throw_if_any() const {
    if (!reasons_.empty()) fail(ErrorCode::kInvalidCheckpoint, join_reasons(dir_, reasons_, kReasonsShown));
  }

 private:
  std::string dir_;
  std::vector<std::string> reasons_;
};

std::vector<std::string> shard_names(const WeightMap& weight_map, TensorSetCheck& check) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  if (names.size() > kMaxShards) check.note("the index names ", names.size(), " files, more than ", kMaxShards);
  for (const std::string& name : names) {
    if (!is_plain_file_name(name)) {
      check.note("the index names the file ", quote(name),
                 ", which is not the name of a .safetensors file in the directory");
    }
  }
  check.throw_if_any();
  return {names.begin(), names.end()};
}

std::vector<SafetensorsFile> map_shards(const fs::path& dir, const std::vector<std::string>& names,
                                        TensorSetCheck& check) {
  std::vector<SafetensorsFile> shards;
  for (const std::string& name : names) {
    try {
      shards.emplace_back((dir / name).string());
    } catch (const Error& error) {
      check.note(error.what());
    }
  }
  check.throw_if_any();  // tensors of unreadable shards would only be reported as missing
  return shards;
}

std::string describe(DType dtype, const Shape& shape) { return concat(dtype_name(dtype), " ", shape.to_string()); }

void check_schema(const Config& config, const std::unordered_map<std::string_view, TensorView>& tensors,
                  TensorSetCheck& check) {
  const std::vector<TensorSpec> schema = make_schema(config);
  std::set<std::string_view> known;
  size_t found = 0;
  for (const TensorSpec& spec : schema) {
    const auto tensor = tensors.find(spec.name);
    if (tensor == tensors.end()) {
      check.note("tensor ", quote(spec.name), " (", describe(spec.dtype, spec.shape), ") is missing");
      continue;
    }
    ++found;
    const TensorView& view = tensor->second;
    if (view.dtype != spec.dtype || view.shape != spec.shape) {
      check.note("tensor ", quote(spec.name), " is ", describe(view.dtype, view.shape), ", must be ",
                 describe(spec.dtype, spec.shape));
    }
  }
  if (found == tensors.size()) return;
  for (const TensorSpec& spec : schema) known.insert(spec.name);
  std::vector<std::string_view> extra;
  for (const auto& [name, view] : tensors) {
    if (!known.contains(name)) extra.push_back(name);
  }
  std::sort(extra.begin(), extra.end());
  for (const std::string_view name : extra) check.note("tensor ", quote(name), " is not part of this model");
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& dir) {
  const fs::path root(dir);
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    fail(ErrorCode::kNotFound, dir, ": not a directory with a checkpoint", error ? ": " + error.message() : "");
  }
  Checkpoint checkpoint;
  checkpoint.dir_ = dir;
  checkpoint.config_ = load_config(dir);

  TensorSetCheck check(dir);
  const bool sharded = fs::exists(root / kIndexName, error);
  if (!sharded && !fs::exists(root / kSingleName, error)) {
    fail(ErrorCode::kNotFound, dir, ": has neither ", kIndexName, " nor ", kSingleName);
  }
  const auto weight_map =
      sharded ? parse_weight_map(read_file((root / kIndexName).string(), kMaxIndexBytes), (root / kIndexName).string())
              : WeightMap();
  const auto names = sharded ? shard_names(weight_map, check) : std::vector<std::string>{kSingleName};
  checkpoint.shards_ = map_shards(root, names, check);

  size_t count = 0;
  for (const SafetensorsFile& shard : checkpoint.shards_) count += shard.header().tensors.size();
  checkpoint.tensors_.reserve(count);
  std::unordered_map<std::string_view, size_t> shard_of;
  for (size_t i = 0; i < checkpoint.shards_.size(); ++i) {
    const SafetensorsFile& shard = checkpoint.shards_[i];
    for (const SafetensorsEntry& entry : shard.header().tensors) {
      checkpoint.total_bytes_ += entry.bytes();
      if (!checkpoint.tensors_.emplace(entry.name, shard.view(entry)).second) {
        check.note("tensor ", quote(entry.name), " is in ", names[shard_of[entry.name]], " and in ", names[i]);
      } else if (sharded) {
        shard_of.emplace(entry.name, i);
        const auto indexed = weight_map.find(entry.name);
        if (indexed == weight_map.end()) {
          check.note("tensor ", quote(entry.name), " of ", names[i], " is not in the index");
        } else if (indexed->second != names[i]) {
          check.note("the index puts tensor ", quote(entry.name), " in ", indexed->second, ", but it is in ", names[i]);
        }
      }
    }
  }
  for (const auto& [name, file] : weight_map) {
    if (!checkpoint.tensors_.contains(name)) {
      check.note("the index puts tensor ", quote(name), " in ", file, ", which does not have it");
    }
  }
  check_schema(checkpoint.config_, checkpoint.tensors_, check);
  check.throw_if_any();
  checkpoint.advise();
  return checkpoint;
}

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> paths;
  paths.reserve(shards_.size());
  for (const SafetensorsFile& shard : shards_) paths.push_back(shard.path());
  return paths;
}

TensorView Checkpoint::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(ErrorCode::kInvalidCheckpoint, dir_, ": there is no tensor ", quote(name));
  return found->second;
}

// Weights are read in long runs: huge pages where the file system has them. Engram rows are picked at random: neither
// read-ahead nor huge pages. Advice may be ignored, and so is its result.
void Checkpoint::advise() const {
  for (const SafetensorsFile& shard : shards_) {
    auto* start = const_cast<std::byte*>(shard.bytes().data());
    ::madvise(start, shard.bytes().size(), MADV_HUGEPAGE);
  }
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (const int layer : config_.engram_layer_ids) {
    for (const char* plane : {"weight", "scale"}) {
      const TensorView table = tensor(concat("layers.", layer, ".engram.embed.", plane));
      // Whole pages inside the table.
      const auto skip = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(table.data) % page);
      const int64_t length = (table.bytes() - skip) / static_cast<int64_t>(page) * static_cast<int64_t>(page);
      if (length <= 0) continue;
      for (const int advice : {MADV_RANDOM, MADV_NOHUGEPAGE}) {
        ::madvise(const_cast<std::byte*>(table.data) + skip, static_cast<size_t>(length), advice);
      }
    }
  }
}

}  // namespace folio
