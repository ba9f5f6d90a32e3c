#include "server/log_writer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace folio {
namespace {

constexpr size_t kMaxLines = 10000;

std::FILE* open_log(const std::string& path) {
  if (path.empty()) return stderr;
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) fail(ErrorCode::kInvalidArgument, "cannot write the log ", path, ": ", std::strerror(errno));
  return file;
}

}  // namespace

LogWriter::LogWriter(const std::string& path) : file_(open_log(path)), thread_([this] { loop(); }) {}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  thread_.join();
  if (file_ != stderr) std::fclose(file_);
}

void LogWriter::write(std::string line) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= kMaxLines) {
    ++dropped_;
    return;
  }
  lines_.push_back(std::move(line));
  changed_.notify_one();
}

void LogWriter::loop() {
  for (bool stop = false; !stop;) {
    std::deque<std::string> lines;
    int64_t dropped = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !lines_.empty(); });
      lines.swap(lines_);
      dropped = std::exchange(dropped_, 0);
      stop = stop_;
    }
    for (const std::string& line : lines) std::fprintf(file_, "%s\n", line.c_str());
    if (dropped > 0) std::fprintf(file_, "%lld log lines were dropped\n", static_cast<long long>(dropped));
    std::fflush(file_);
  }
}

}  // namespace folio
