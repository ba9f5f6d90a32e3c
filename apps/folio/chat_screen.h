// How a chat looks: the answer on standard output while it comes, everything about it on standard error.
#pragma once

#include <string>
#include <string_view>

#include "protocol/delta.h"

namespace folio {

// Reasoning is dimmed where standard output is a terminal, unless NO_COLOR is set; elsewhere it stands in its own
// paragraph behind "thinking:". Calls of tools have a line each, "call NAME ARGUMENTS". On a terminal control
// characters of the model's text are left out.
class ChatScreen {
 public:
  ChatScreen();

  void show(const Delta& delta);
  // The answer is over.
  void end_answer();
  // A line about the chat.
  void note(const std::string& text) const;

 private:
  enum class Part : unsigned char { kNone, kReasoning, kContent, kCall };
  void change(Part part);
  void write(std::string_view text);

  bool terminal_;
  bool styled_, styled_notes_;
  Part part_ = Part::kNone;
  bool at_line_start_ = true;
};

// `text` without control characters (C0 but newline and tab, DEL, C1), which could command a terminal. `text` is UTF-8.
std::string without_controls(std::string_view text);

}  // namespace folio
