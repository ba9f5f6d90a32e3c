#include "protocol/stream_parser.h"

#include <algorithm>

#include "protocol/dsml.h"

namespace folio {
namespace {

using dsml::Match;
using dsml::Tag;

constexpr size_t kBlockNewlines = 2;  // in front of a block of calls, and part of it

}  // namespace

void append_delta(std::vector<Delta>& deltas, Delta::Kind kind, std::string_view text, int32_t call) {
  if (text.empty()) return;
  if (!deltas.empty() && deltas.back().kind == kind && deltas.back().call == call) {
    deltas.back().text += text;
  } else {
    deltas.push_back({kind, std::string(text), call});
  }
}

StreamParser::StreamParser(ParserOptions options)
    : state_(options.start == AnswerStart::kReasoning ? State::kReasoning : State::kContent),
      calls_(options.calls),
      include_stop_(options.include_stop),
      stops_(std::move(options.stops)),
      call_parser_(std::move(options.tools)) {}

void StreamParser::push(std::string_view text, std::vector<Delta>& out) {
  if (state_ == State::kDone) return;
  if (state_ == State::kCalls) {
    call_parser_.push(text, out);
    return;
  }
  pending_.erase(0, at_);
  at_ = 0;
  pending_ += text;
  while (step(out)) {
  }
}

// How much of rest() stands before the newlines that would belong to a block which begins at `opener`.
size_t StreamParser::before_block(size_t opener) const {
  size_t end = opener;
  while (end > 0 && opener - end < kBlockNewlines && rest()[end - 1] == '\n') --end;
  return end;
}

// Gives out the first `end` bytes of rest() as the text that they are. A stop string in them ends everything.
void StreamParser::release(size_t end, std::vector<Delta>& out) {
  const std::string_view text = rest().substr(0, end);
  at_ += end;
  if (state_ == State::kReasoning) {
    append_delta(out, Delta::Kind::kReasoning, text);
    return;
  }
  content_begun_ = content_begun_ || !std::all_of(text.begin(), text.end(), dsml::is_space);
  append_delta(out, Delta::Kind::kContent, stops_.push(text));
  if (!stops_.stopped()) return;
  if (include_stop_) append_delta(out, Delta::Kind::kContent, stops_.matched());
  state_ = State::kDone;
}

// Takes what is certain from rest(); false when there is nothing more to take.
bool StreamParser::step(std::vector<Delta>& out) {
  if (state_ != State::kReasoning && state_ != State::kContent) return false;
  const auto [at, match] = dsml::find(rest(), 0, calls_ ? dsml::text_tags() : dsml::thinking_tags());
  if (match.kind != Match::Kind::kFull) {
    release(calls_ ? before_block(at) : at, out);
    return false;
  }
  const size_t length = match.spelling.text.size();
  switch (match.spelling.tag) {
    case Tag::kCalls:
      return look_behind_wrapper(at, length, out);
    case Tag::kInvoke:
      begin_calls(at, at, out);
      return false;
    default:
      release(at, out);
      at_ += length;
      think_tag(match.spelling.tag == Tag::kEndThink);
      return true;
  }
}

void StreamParser::think_tag(bool closes) {
  if (closes && state_ == State::kReasoning) {
    state_ = State::kContent;
  } else if (!closes && state_ == State::kContent && !content_begun_) {
    state_ = State::kReasoning;
  }
}

// The opener of a block is at `at`. It opens one if a tag follows; else it was quoted.
bool StreamParser::look_behind_wrapper(size_t at, size_t length, std::vector<Delta>& out) {
  const size_t before = before_block(at);
  if (before > 0) {  // so that what is held begins at the block, and space_end_ means the same place next time
    release(before, out);
    return true;
  }
  size_t next = std::max(at + length, space_end_);
  while (next < rest().size() && dsml::is_space(rest()[next])) ++next;
  const Match follower = dsml::match(rest().substr(next), dsml::tags_behind_opener());
  space_end_ = follower.kind == Match::Kind::kPartial ? next : 0;
  switch (follower.kind) {
    case Match::Kind::kPartial:
      return false;
    case Match::Kind::kFull:
      begin_calls(at, next, out);
      return false;
    default:
      release(at + length, out);
      return true;
  }
}

// The text ends before the newlines that precede `opener`; the parser of calls goes on at `calls`.
void StreamParser::begin_calls(size_t opener, size_t calls, std::vector<Delta>& out) {
  const size_t calls_at = at_ + calls;
  release(before_block(opener), out);
  if (state_ == State::kDone) return;
  append_delta(out, Delta::Kind::kContent, stops_.flush());
  state_ = State::kCalls;
  call_parser_.push(std::string_view(pending_).substr(calls_at), out);
  pending_.clear();
  at_ = 0;
}

void StreamParser::finish(AnswerEnd end, std::vector<Delta>& out) {
  if (state_ == State::kCalls) {
    call_parser_.finish(end == AnswerEnd::kStop, out);
  } else if (state_ != State::kDone) {
    const size_t marker = calls_ ? rest().find(dsml::kOpen) : std::string_view::npos;
    release(marker != std::string_view::npos ? before_block(marker) : rest().size(), out);
    append_delta(out, Delta::Kind::kContent, stops_.flush());
  }
  state_ = State::kDone;
}

void ParsedAnswer::add(const std::vector<Delta>& deltas) {
  for (const Delta& delta : deltas) {
    switch (delta.kind) {
      case Delta::Kind::kReasoning:
        reasoning += delta.text;
        break;
      case Delta::Kind::kContent:
        content += delta.text;
        break;
      case Delta::Kind::kCall:
        calls.push_back({.name = delta.text, .arguments = {}});
        break;
      case Delta::Kind::kArguments:
        calls[static_cast<size_t>(delta.call)].arguments += delta.text;
        break;
      case Delta::Kind::kCallEnd:
        calls[static_cast<size_t>(delta.call)].complete = true;
        break;
    }
  }
}

std::string_view chat_finish_reason(const StreamParser& parser, AnswerEnd end) {
  if (parser.calls_completed() > 0) return "tool_calls";
  return end == AnswerEnd::kStop ? "stop" : "length";
}

}  // namespace folio
