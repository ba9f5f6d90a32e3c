// Memory that is not malloc's: read-only file mappings and what the machine has free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace folio {

// A whole file mapped read-only. Movable, unmaps on destruction.
class MappedFile {
 public:
  // Maps `path`. Throws Error(kNotFound) when it cannot be opened or is not a regular file. An empty file maps to an
  // empty span.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// The content of a file, pipe or device of at most `limit` bytes. Throws Error(kNotFound) when it cannot be read and
// Error(kInvalidArgument) when it is larger.
std::string read_file(const std::string& path, size_t limit);

// Bytes that can be allocated without swapping: MemAvailable, capped by what the control group of the process leaves
// where it has a limit. Page cache counts as free.
int64_t available_memory();

// Bytes of this process in physical memory, mapped files included; 0 where the system does not say.
int64_t resident_memory();

}  // namespace folio
