// One safetensors file: 8 bytes of header length (little-endian), a JSON header, the payload.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/view.h"

namespace folio {

// Longest header that is read, the format's own limit.
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t offset = 0;  // from the start of the file

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // by ascending offset
  std::map<std::string, std::string> metadata;
};

// Reads and checks the header of a whole file, which nobody vouches for. Throws Error(kInvalidCheckpoint) naming
// `origin` and the tensor unless the tensors have distinct names, known dtypes and at most four dimensions, and
// their bytes fill the payload exactly, without overlap. Touches the header's pages only.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& origin);

// A mapped file with its header.
class SafetensorsFile {
 public:
  // Throws Error(kNotFound) when `path` cannot be mapped, Error(kInvalidCheckpoint) as parse_safetensors().
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  const SafetensorsHeader& header() const { return header_; }
  TensorView view(const SafetensorsEntry& entry) const {
    return {file_.bytes().data() + entry.offset, entry.dtype, entry.shape};
  }
  // Nullptr when there is no such tensor. Linear in the number of tensors.
  const SafetensorsEntry* find(std::string_view name) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
};

// Writes a file under a temporary name and gives it its own when it is complete. Tensors lie in the order of the
// reference writer (wider elements first, then by name), so that every one is aligned.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
  };

  // Creates the temporary file, reserves its full size and writes the header. Throws Error(kInvalidArgument) when that
  // is not possible, on a full disk for instance, or when something that is no regular file has the path.
  SafetensorsWriter(std::string path, std::vector<Tensor> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  // Removes the temporary file unless finish() has been called.
  ~SafetensorsWriter();

  // Writes bytes of a tensor from byte `offset` of it on. In any order, from any thread.
  void write(std::string_view name, std::span<const std::byte> bytes, int64_t offset = 0);
  template <typename T>
  void write(std::string_view name, std::span<const T> values, int64_t offset = 0) {
    write(name, std::as_bytes(values), offset);
  }

  // Renames the file to its path. Every byte of every tensor must have been written.
  void finish();

  int64_t payload_bytes() const { return payload_bytes_; }

 private:
  struct Place {
    int64_t offset = 0;  // from the start of the file
    int64_t bytes = 0;
  };

  [[noreturn]] void fail_write(int error) const;
  void write_at(std::span<const std::byte> bytes, int64_t offset) const;

  std::string path_;
  std::string temporary_;
  std::map<std::string, Place, std::less<>> places_;
  int64_t payload_bytes_ = 0;
  std::atomic<int64_t> written_ = 0;
  int fd_ = -1;
};

}  // namespace folio
