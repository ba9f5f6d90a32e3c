#include "base/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace folio {
namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Opens a file for reading and says what it is.
FileDescriptor open_file(const std::string& path, struct stat& info) {
  FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0) fail(ErrorCode::kNotFound, path, ": ", std::strerror(errno));
  if (S_ISDIR(info.st_mode)) fail(ErrorCode::kNotFound, path, ": is a directory, not a regular file");
  return FileDescriptor{std::exchange(file.fd, -1)};
}

// The number in a one-line file such as a cgroup limit; nothing when it is absent or says "max".
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  int64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// The number behind `key` in a file of lines "key number" or "key: number unit"; nothing when it is not there.
std::optional<int64_t> number_of(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t value = 0;
    if (fields >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// What a control group leaves of its limit. The kernel drops the page cache of mapped checkpoints when memory runs
// short, so that cache counts as free. Nothing without a limit.
std::optional<int64_t> left_in_cgroup(const std::string& limit_file, const std::string& usage_file,
                                      const std::string& stat_file, const std::string& prefix) {
  const auto limit = number_in(limit_file);
  const auto usage = number_in(usage_file);
  if (!limit || !usage) return std::nullopt;
  const int64_t page_cache = number_of(stat_file, prefix + "inactive_file").value_or(0) +
                             number_of(stat_file, prefix + "active_file").value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - page_cache));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  struct stat info{};
  const FileDescriptor file = open_file(path, info);
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::kNotFound, path, ": not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) fail(ErrorCode::kNotFound, path, ": cannot map: ", std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string read_file(const std::string& path, size_t limit) {
  struct stat info{};
  const FileDescriptor file = open_file(path, info);
  const bool sized = S_ISREG(info.st_mode);  // pipes and devices tell no size
  if (sized && static_cast<size_t>(info.st_size) > limit) {
    fail(ErrorCode::kInvalidArgument, path, ": ", info.st_size, " bytes, more than the limit of ", limit);
  }
  constexpr size_t kPiece = size_t{1} << 16;
  std::string content;
  if (sized) content.reserve(static_cast<size_t>(info.st_size) + kPiece);
  for (;;) {
    const size_t done = content.size();
    content.resize(done + kPiece);
    const ssize_t got = ::read(file.fd, content.data() + done, kPiece);
    if (got < 0 && errno != EINTR) fail(ErrorCode::kNotFound, path, ": ", std::strerror(errno));
    content.resize(done + static_cast<size_t>(std::max<ssize_t>(0, got)));
    if (content.size() > limit) fail(ErrorCode::kInvalidArgument, path, ": more than the limit of ", limit, " bytes");
    if (got == 0) return content;
  }
}

int64_t available_memory() {
  const auto free = number_of("/proc/meminfo", "MemAvailable:");
  int64_t available = free ? *free * 1024 : std::numeric_limits<int64_t>::max();
  const std::string root = "/sys/fs/cgroup/";
  const std::string first = root + "memory/memory.";  // of version 1
  for (const auto& left :
       {left_in_cgroup(root + "memory.max", root + "memory.current", root + "memory.stat", ""),
        left_in_cgroup(first + "limit_in_bytes", first + "usage_in_bytes", first + "stat", "total_")}) {
    if (left) available = std::min(available, *left);
  }
  return available;
}

int64_t resident_memory() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  return statm >> size >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace folio
