#include "chat_screen.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace folio {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

bool wants_style(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) != 0 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

}  // namespace

std::string without_controls(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1) {
      ++i;
    } else if ((byte >= 0x20 && byte != 0x7F) || byte == '\n' || byte == '\t') {
      shown += text[i];
    }
  }
  return shown;
}

ChatScreen::ChatScreen()
    : terminal_(isatty(STDOUT_FILENO) != 0),
      styled_(wants_style(STDOUT_FILENO)),
      styled_notes_(wants_style(STDERR_FILENO)) {}

void ChatScreen::write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!text.empty()) at_line_start_ = text.back() == '\n';
}

// What stands between what was shown and what comes.
void ChatScreen::change(Part part) {
  if (part == part_) return;
  if (part_ == Part::kReasoning && styled_) std::fwrite(kPlain.data(), 1, kPlain.size(), stdout);
  if (part_ == Part::kReasoning || (part_ == Part::kContent && part == Part::kCall)) {
    write(at_line_start_ ? "\n" : "\n\n");
  }
  if (part == Part::kReasoning) {
    if (styled_) {
      std::fwrite(kDim.data(), 1, kDim.size(), stdout);
    } else {
      write("thinking: ");
    }
  }
  part_ = part;
}

void ChatScreen::show(const Delta& delta) {
  switch (delta.kind) {
    case Delta::Kind::kReasoning:
      change(Part::kReasoning);
      break;
    case Delta::Kind::kContent:
      change(Part::kContent);
      break;
    case Delta::Kind::kCall:
      change(Part::kCall);
      if (!at_line_start_) write("\n");
      write("call ");
      break;
    case Delta::Kind::kArguments:
    case Delta::Kind::kCallEnd:
      break;
  }
  write(terminal_ ? without_controls(delta.text) : delta.text);
  if (delta.kind == Delta::Kind::kCall) write(" ");
  if (delta.kind == Delta::Kind::kCallEnd) write("\n");
  std::fflush(stdout);
}

void ChatScreen::end_answer() {
  if (part_ == Part::kReasoning && styled_) std::fwrite(kPlain.data(), 1, kPlain.size(), stdout);
  if (!at_line_start_) write("\n");
  std::fflush(stdout);
  part_ = Part::kNone;
  at_line_start_ = true;
}

void ChatScreen::note(const std::string& text) const {
  const std::string begin(styled_notes_ ? kDim : std::string_view());
  const std::string end(styled_notes_ ? kPlain : std::string_view());
  std::fprintf(stderr, "%s%s%s\n", begin.c_str(), text.c_str(), end.c_str());
}

}  // namespace folio
