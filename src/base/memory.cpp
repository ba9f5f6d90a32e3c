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
#include <sstream>
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

// Opens a regular file for reading and returns its size.
FileDescriptor open_regular(const std::string& path, size_t& size) {
  FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) fail(ErrorCode::kNotFound, path, ": ", std::strerror(errno));
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) fail(ErrorCode::kNotFound, path, ": ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::kNotFound, path, ": not a regular file");
  size = static_cast<size_t>(info.st_size);
  return FileDescriptor{std::exchange(file.fd, -1)};
}

// The number in a one-line file such as a cgroup limit; the largest integer when it is absent or says "max".
int64_t number_in(const char* path) {
  std::ifstream in(path);
  int64_t value = 0;
  return in >> value ? value : std::numeric_limits<int64_t>::max();
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  size_t size = 0;
  const FileDescriptor file = open_regular(path, size);
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
  size_t size = 0;
  const FileDescriptor file = open_regular(path, size);
  if (size > limit) fail(ErrorCode::kInvalidArgument, path, ": ", size, " bytes, more than the limit of ", limit);
  std::string content(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.fd, content.data() + done, size - done);
    if (got < 0) fail(ErrorCode::kNotFound, path, ": ", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

int64_t available_memory() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    std::istringstream fields(line);
    std::string key;
    int64_t kib = 0;
    if (fields >> key >> kib && key == "MemAvailable:") available = kib * 1024;
  }
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  if (limit != std::numeric_limits<int64_t>::max()) {
    available = std::min(available, std::max<int64_t>(0, limit - number_in("/sys/fs/cgroup/memory.current")));
  }
  return available;
}

}  // namespace folio
