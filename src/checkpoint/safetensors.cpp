#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "checkpoint/text.h"

namespace folio {
namespace {

using nlohmann::json;

constexpr size_t kMaxTensors = 1 << 20;
constexpr size_t kMaxMetadata = 1 << 12;

// Receives the header's JSON as events and keeps tensors and metadata; no document is built, so a header costs no more
// memory than the tensors it has.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  HeaderReader(const std::string& origin, int64_t payload_start, int64_t payload_bytes)
      : origin_(origin), payload_start_(payload_start), payload_bytes_(payload_bytes) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    switch (where_) {
      case Where::kOutside:
        where_ = Where::kTop;
        break;
      case Where::kName:
        where_ = Where::kTensor;
        break;
      case Where::kMetadataName:
        where_ = Where::kMetadata;
        break;
      default:
        unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    if (where_ == Where::kTop) {
      if (name == "__metadata__") {
        if (std::exchange(metadata_seen_, true)) refuse(quote(name), " appears twice");
        where_ = Where::kMetadataName;
      } else {
        if (header_.tensors.size() == kMaxTensors) refuse("more than ", kMaxTensors, " tensors");
        where_ = Where::kName;
        entry_ = {};
        entry_.name = name;
        dtype_seen_ = shape_seen_ = false;
        offsets_.clear();
      }
    } else if (where_ == Where::kMetadata) {
      if (header_.metadata.size() == kMaxMetadata) refuse("more than ", kMaxMetadata, " metadata entries");
      metadata_key_ = name;
      where_ = Where::kMetadataValue;
    } else if (name == "dtype" && !dtype_seen_) {
      where_ = Where::kDType;
    } else if (name == "shape" && !shape_seen_) {
      where_ = Where::kShapeName;
    } else if (name == "data_offsets" && offsets_.empty()) {
      where_ = Where::kOffsetsName;
    } else {
      refuse("tensor ", quote(entry_.name), " has an unknown or repeated field ", quote(name));
    }
    return true;
  }

  bool string(std::string& value) override {
    if (where_ == Where::kDType) {
      const auto dtype = dtype_from_name(value);
      if (!dtype) refuse("tensor ", quote(entry_.name), " has the unknown dtype ", quote(value));
      entry_.dtype = *dtype;
      dtype_seen_ = true;
      where_ = Where::kTensor;
    } else if (where_ == Where::kMetadataValue) {
      if (!header_.metadata.emplace(metadata_key_, value).second)
        refuse("metadata ", quote(metadata_key_), " appears twice");
      where_ = Where::kMetadata;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(size_t) override {
    if (where_ == Where::kShapeName) {
      where_ = Where::kShape;
    } else if (where_ == Where::kOffsetsName) {
      where_ = Where::kOffsets;
    } else {
      unexpected("a list");
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      refuse("tensor ", quote(entry_.name), " has the number ", value, ", which is out of range");
    }
    if (where_ == Where::kShape) {
      if (entry_.shape.rank() == Shape::kMaxRank) {
        refuse("tensor ", quote(entry_.name), " has more than ", Shape::kMaxRank, " dimensions");
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else if (where_ == Where::kOffsets && offsets_.size() < 2) {
      offsets_.push_back(static_cast<int64_t>(value));
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool end_array() override {
    if (where_ == Where::kShape) {
      shape_seen_ = true;
    } else if (offsets_.size() != 2) {
      refuse("tensor ", quote(entry_.name), " needs two data_offsets");
    }
    where_ = Where::kTensor;
    return true;
  }

  bool end_object() override {
    if (where_ == Where::kTensor) {
      add_tensor();
      where_ = Where::kTop;
    } else if (where_ == Where::kMetadata) {
      where_ = Where::kTop;
    }
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(int64_t) override { unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { unexpected("a number that is no integer"); }
  bool binary(json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    refuse("the header is not valid JSON at byte ", position);
  }

 private:
  enum class Where {
    kOutside,
    kTop,           // in the header object
    kMetadataName,  // after "__metadata__"
    kMetadata,
    kMetadataValue,  // after a metadata key
    kName,           // after a tensor's name
    kTensor,
    kDType,      // after "dtype"
    kShapeName,  // after "shape"
    kShape,
    kOffsetsName,  // after "data_offsets"
    kOffsets,
  };

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::kInvalidCheckpoint, origin_, ": ", parts...);
  }

  [[noreturn]] void unexpected(const char* what) const {
    switch (where_) {
      case Where::kOutside:
        refuse("the header must be an object, is ", what);
      case Where::kMetadataName:
        refuse("__metadata__ must be an object, is ", what);
      case Where::kMetadataValue:
        refuse("metadata ", quote(metadata_key_), " must be a string, is ", what);
      case Where::kName:
        refuse("tensor ", quote(entry_.name), " must be described by an object, is ", what);
      case Where::kDType:
        refuse("tensor ", quote(entry_.name), ": dtype must be a string, is ", what);
      case Where::kShapeName:
      case Where::kShape:
        refuse("tensor ", quote(entry_.name), ": shape must be a list of sizes, has ", what);
      default:
        refuse("tensor ", quote(entry_.name), ": data_offsets must be a list of two offsets, has ", what);
    }
  }

  void add_tensor() {
    const std::string name = "tensor " + quote(entry_.name);
    if (!dtype_seen_ || !shape_seen_ || offsets_.empty()) refuse(name, " lacks dtype, shape or data_offsets");
    int64_t bytes = dtype_size(entry_.dtype);
    for (const int64_t size : entry_.shape) {
      if (__builtin_mul_overflow(bytes, size, &bytes)) refuse(name, " has a shape of too many elements");
    }
    const int64_t begin = offsets_[0];
    const int64_t end = offsets_[1];
    if (begin > end) refuse(name, " ends at byte ", end, " before it begins at ", begin);
    if (end > payload_bytes_) {
      refuse(name, " ends at byte ", end, " of the payload, but the file has only ", payload_bytes_, " (truncated?)");
    }
    if (end - begin != bytes) {
      refuse(name, " has ", end - begin, " bytes, but ", dtype_name(entry_.dtype), " ", entry_.shape.to_string(),
             " needs ", bytes);
    }
    entry_.offset = payload_start_ + begin;
    header_.tensors.push_back(std::move(entry_));
  }

  const std::string& origin_;
  const int64_t payload_start_;
  const int64_t payload_bytes_;
  SafetensorsHeader header_;
  Where where_ = Where::kOutside;
  bool metadata_seen_ = false;
  std::string metadata_key_;
  SafetensorsEntry entry_;
  bool dtype_seen_ = false;
  bool shape_seen_ = false;
  std::vector<int64_t> offsets_;
};

void check_names(const std::vector<SafetensorsEntry>& tensors, const std::string& origin) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsEntry& entry : tensors) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    fail(ErrorCode::kInvalidCheckpoint, origin, ": tensor ", quote(*twice), " appears twice in the header");
  }
}

// `tensors` by ascending offset must fill [start, end) of the file.
void check_layout(const std::vector<SafetensorsEntry>& tensors, int64_t start, int64_t end, const std::string& origin) {
  int64_t at = start;
  const SafetensorsEntry* previous = nullptr;
  for (const SafetensorsEntry& entry : tensors) {
    if (entry.offset < at) {
      fail(ErrorCode::kInvalidCheckpoint, origin, ": tensors ", quote(previous->name), " and ", quote(entry.name),
           " overlap at byte ", entry.offset - start, " of the payload");
    }
    if (entry.offset > at) {
      fail(ErrorCode::kInvalidCheckpoint, origin, ": bytes ", at - start, " to ", entry.offset - start,
           " of the payload, before tensor ", quote(entry.name), ", belong to no tensor");
    }
    at += entry.bytes();
    previous = &entry;
  }
  if (at != end) {
    fail(ErrorCode::kInvalidCheckpoint, origin, ": the last ", end - at, " bytes of the file belong to no tensor");
  }
}

// Payload order of the reference writer: element types in this order, then names.
int dtype_order(DType dtype) {
  constexpr std::array kOrder = {DType::kI64,    DType::kF32,    DType::kI32, DType::kBF16,
                                 DType::kF8E8M0, DType::kF8E4M3, DType::kI8,  DType::kU8};
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), dtype) - kOrder.begin());
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& origin) {
  const auto refuse = [&](const auto&... parts) { fail(ErrorCode::kInvalidCheckpoint, origin, ": ", parts...); };
  uint64_t length = 0;
  if (file.size() < sizeof length) refuse("only ", file.size(), " bytes, too short for a safetensors file");
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kMaxSafetensorsHeader) {
    refuse("claims a header of ", length, " bytes, more than the limit of ", kMaxSafetensorsHeader);
  }
  if (length > file.size() - sizeof length) {
    refuse("claims a header of ", length, " bytes, but the file has only ", file.size(), " (truncated?)");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  if (text.empty() || text[0] != '{') refuse("the header does not begin with '{'");
  const auto start = static_cast<int64_t>(sizeof length + length);
  const auto end = static_cast<int64_t>(file.size());
  HeaderReader reader(origin, start, end - start);
  json::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.bytes()) < std::pair(b.offset, b.bytes());
  });
  check_names(header.tensors, origin);
  check_layout(header.tensors, start, end, origin);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), header_(parse_safetensors(file_.bytes(), path)) {}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  for (const SafetensorsEntry& entry : header_.tensors) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<Tensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), temporary_(concat(path_, ".tmp-", ::getpid())) {
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(dtype_order(a.dtype), std::string_view(a.name)) <
           std::pair(dtype_order(b.dtype), std::string_view(b.name));
  });
  // Written piece by piece: an ordered document looks for duplicates in linear time.
  const auto encoded = [](const std::string& text) {
    return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  };
  std::string header = "{";
  if (!metadata.empty())
    header += "\"__metadata__\":" + json(metadata).dump(-1, ' ', false, json::error_handler_t::replace);
  for (const Tensor& tensor : tensors) {
    const int64_t bytes = tensor.shape.elements() * dtype_size(tensor.dtype);
    FOLIO_CHECK(places_.emplace(tensor.name, Place{payload_bytes_, bytes}).second, tensor.name, " twice");
    header += concat(header.size() > 1 ? "," : "", encoded(tensor.name), ":{\"dtype\":\"", dtype_name(tensor.dtype),
                     "\",\"shape\":", tensor.shape.to_string(), ",\"data_offsets\":[", payload_bytes_, ",",
                     payload_bytes_ + bytes, "]}");
    payload_bytes_ += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  const auto start = static_cast<int64_t>(sizeof length + length);
  for (auto& [name, place] : places_) place.offset += start;

  struct stat there{};
  if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    fail(ErrorCode::kInvalidArgument, path_, ": is not a regular file and will not be replaced by one");
  }
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_write(errno);
  try {
    // Reserving the space finds a full disk before the work is done.
    if (::fallocate(fd_, 0, 0, start + payload_bytes_) != 0) {
      if (errno != EOPNOTSUPP && errno != ENOSYS) fail_write(errno);
      if (::ftruncate(fd_, start + payload_bytes_) != 0) fail_write(errno);
    }
    write_at(std::as_bytes(std::span(&length, 1)), 0);
    write_at(std::as_bytes(std::span(header)), sizeof length);
  } catch (...) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes, int64_t offset) {
  const auto found = places_.find(name);
  FOLIO_CHECK(found != places_.end(), name);
  const Place& place = found->second;
  const auto size = static_cast<int64_t>(bytes.size());
  FOLIO_CHECK(offset >= 0 && size <= place.bytes - offset, name, ": ", size, " bytes at ", offset, " of ", place.bytes);
  write_at(bytes, place.offset + offset);
  written_ += size;
}

void SafetensorsWriter::finish() {
  FOLIO_CHECK(written_ == payload_bytes_, path_, ": ", written_.load(), " of ", payload_bytes_, " bytes written");
  const int closed = ::close(std::exchange(fd_, -1));
  const int error = errno;
  if (closed == 0 && ::rename(temporary_.c_str(), path_.c_str()) == 0) return;
  const int reason = closed == 0 ? errno : error;
  ::unlink(temporary_.c_str());
  fail_write(reason);
}

void SafetensorsWriter::fail_write(int error) const {
  fail(ErrorCode::kInvalidArgument, path_, ": cannot write ", payload_bytes_, " bytes: ", std::strerror(error));
}

void SafetensorsWriter::write_at(std::span<const std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_write(errno);
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

}  // namespace folio
