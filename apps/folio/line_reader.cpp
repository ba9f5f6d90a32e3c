#include "line_reader.h"

#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "interrupt.h"

namespace folio {
namespace {

constexpr int kHistoryLines = 1000;

// The editor measures characters: it needs to know that they are UTF-8.
void use_utf8() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

// libedit's line editor with its history.
class LineReader::Editor {
 public:
  explicit Editor(const std::string& history) : file_(history) {
    use_utf8();
    editor_ = el_init("folio", stdin, isatty(STDOUT_FILENO) != 0 ? stdout : stderr, stderr);
    history_ = history_init();
    ::history(history_, &event_, H_SETSIZE, kHistoryLines);
    ::history(history_, &event_, H_SETUNIQUE, 1);
    if (!file_.empty()) ::history(history_, &event_, H_LOAD, file_.c_str());
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &Editor::show_prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, ::history, history_);
    el_set(editor_, EL_SIGNAL, 0);
    el_set(editor_, EL_GETCFN, &Editor::read_character);
    el_source(editor_, nullptr);  // the user's ~/.editrc
  }

  ~Editor() {
    if (!file_.empty()) {
      const mode_t before = umask(S_IRWXG | S_IRWXO);  // what people ask is private
      ::history(history_, &event_, H_SAVE, file_.c_str());
      umask(before);
    }
    history_end(history_);
    el_end(editor_);
  }

  Event read(const std::string& prompt, std::string& line) {
    prompt_ = prompt;
    int length = 0;
    el_set(editor_, EL_PREP_TERM, 1);  // before the prompt shows: keys that answer it are not the terminal's to treat
    const char* text = el_gets(editor_, &length);
    if (take_interrupt()) {
      el_reset(editor_);
      return Event::kInterrupt;
    }
    if (text == nullptr || length <= 0) return Event::kEnd;
    line.assign(text, static_cast<size_t>(length));
    if (line.ends_with('\n')) line.pop_back();
    if (!line.empty()) ::history(history_, &event_, H_ENTER, line.c_str());
    return Event::kLine;
  }

 private:
  static char* show_prompt(EditLine* editor) {
    Editor* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self->prompt_.data();
  }

  // One character of the terminal, in as many bytes as it takes: 1; 0: the input has ended; -1: Ctrl-C came.
  static int read_character(EditLine*, wchar_t* character) {
    std::mbstate_t state{};
    for (;;) {
      if (!wait_readable(STDIN_FILENO)) return -1;
      char byte = 0;
      if (::read(STDIN_FILENO, &byte, 1) != 1) return 0;
      const size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<size_t>(-1)) state = {};  // not UTF-8: passed over
      if (used == 0) *character = L'\0';
      if (used == 0 || used == 1) return 1;
    }
  }

  std::string file_;
  std::string prompt_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  HistEvent event_{};
};

LineReader::LineReader(const std::string& history) {
  if (isatty(STDIN_FILENO) != 0) editor_ = std::make_unique<Editor>(history);
}

LineReader::~LineReader() = default;

LineReader::Event LineReader::read(const std::string& prompt, std::string& line) {
  if (editor_ != nullptr) return editor_->read(prompt, line);
  const bool is_line = static_cast<bool>(std::getline(std::cin, line));
  if (take_interrupt()) return Event::kInterrupt;
  return is_line ? Event::kLine : Event::kEnd;
}

std::string history_file(const std::string& command) {
  namespace fs = std::filesystem;
  fs::path directory;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    directory = state;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    directory = fs::path(home) / ".local" / "state";
  } else {
    return {};
  }
  directory /= "folio";
  std::error_code error;
  fs::create_directories(directory, error);
  return error ? std::string() : (directory / (command + "_history")).string();
}

}  // namespace folio
