// Lines for a file or stderr, written by a thread of its own: a full pipe or a slow disk holds nobody up.
#pragma once

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace folio {

class LogWriter {
 public:
  // Appends to the file `path`; "": to stderr. Throws Error(kInvalidArgument) when it cannot be opened.
  explicit LogWriter(const std::string& path);
  // Writes what is left.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // From any thread. When more lines wait than are kept, the line is dropped and counted; the next that is written
  // stands behind a line that says how many.
  void write(std::string line);

 private:
  void loop();

  std::FILE* file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  int64_t dropped_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace folio
