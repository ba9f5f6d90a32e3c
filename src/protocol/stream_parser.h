// The model's text, while it comes, to reasoning, content and tool calls (protocol spec 3.2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/call_parser.h"
#include "protocol/delta.h"
#include "protocol/render.h"
#include "protocol/tools.h"
#include "tokenizer/stop_strings.h"

namespace folio {

struct ParserOptions {
  AnswerStart start = AnswerStart::kContent;
  bool calls = false;  // the request has tools and does not forbid them; else call markup is text like any other
  std::shared_ptr<const std::vector<Tool>> tools = {};  // for the types of arguments; may be null
  std::vector<std::string> stops = {};                  // looked for in the content alone; none is empty
  bool include_stop = false;                            // the stop string that was found is content
};

// Takes text in parts of any size and appends what is certain to a list of deltas. The concatenation of all deltas does
// not depend on how the text was cut. Markup is never content; what a call lacks is not invented. Copyable, so that a
// state can be kept.
class StreamParser {
 public:
  // Throws Error(kInvalidArgument) when a stop string is empty.
  explicit StreamParser(ParserOptions options);

  // The next part: whole UTF-8, without the end of sentence. Ignored when done().
  void push(std::string_view text, std::vector<Delta>& out);
  // The end. Releases what was held back, as far as it is text.
  void finish(AnswerEnd end, std::vector<Delta>& out);

  // Nothing more can come: the block of calls is closed, or a stop string was found. Generation may end here.
  bool done() const { return state_ == State::kDone || call_parser_.done(); }
  bool reasoning() const { return state_ == State::kReasoning; }
  // The stop string that ended the content; null: none has.
  const std::string* stop() const { return stops_.stopped() ? &stops_.matched() : nullptr; }
  int32_t calls_begun() const { return call_parser_.begun(); }
  int32_t calls_completed() const { return call_parser_.completed(); }
  // Bytes between and behind calls that were dropped, white space aside.
  size_t dropped_bytes() const { return call_parser_.dropped_bytes(); }

 private:
  enum class State : uint8_t { kReasoning, kContent, kCalls, kDone };

  bool step(std::vector<Delta>& out);
  bool look_behind_wrapper(size_t at, size_t length, std::vector<Delta>& out);
  void release(size_t end, std::vector<Delta>& out);
  void begin_calls(size_t opener, size_t calls, std::vector<Delta>& out);
  void think_tag(bool closes);
  size_t before_block(size_t opener) const;
  std::string_view rest() const { return std::string_view(pending_).substr(at_); }

  State state_;
  bool calls_;
  bool include_stop_;
  bool content_begun_ = false;  // more than white space
  std::string pending_;         // text that is not given out yet, from at_ on
  size_t at_ = 0;
  size_t space_end_ = 0;  // in rest(): how far there is white space behind a wrapper that is held
  StopStrings stops_;
  CallParser call_parser_;
};

// A whole answer, put together from deltas.
struct ParsedAnswer {
  struct Call {
    std::string name;
    std::string arguments;
    bool complete = false;
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;

  void add(const std::vector<Delta>& deltas);
};

// "tool_calls" if a call was completed, else "stop" or "length" (protocol spec 3.3). A named tool_choice answers "stop"
// instead of "tool_calls": that is the caller's to know.
std::string_view chat_finish_reason(const StreamParser& parser, AnswerEnd end);

}  // namespace folio
