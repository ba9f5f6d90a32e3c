// Lines that somebody types, or that come from a file or a pipe.
#pragma once

#include <memory>
#include <string>

namespace folio {

// On a terminal with editing and history, else plainly.
class LineReader {
 public:
  enum class Event { kLine, kEnd, kInterrupt };

  // `history`: the file that keeps the lines between sessions; "": none does.
  explicit LineReader(const std::string& history);
  ~LineReader();

  bool interactive() const { return editor_ != nullptr; }

  // Waits for the next line, without its newline; `prompt` is shown on a terminal. kInterrupt: Ctrl-C came instead.
  Event read(const std::string& prompt, std::string& line);

 private:
  class Editor;
  std::unique_ptr<Editor> editor_;
};

// Where the lines typed to `command` are kept: $XDG_STATE_HOME/folio/COMMAND_history, or under ~/.local/state; "" when
// there is no such place.
std::string history_file(const std::string& command);

}  // namespace folio
