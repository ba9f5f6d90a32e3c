#include "protocol/call_parser.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "protocol/dsml.h"

namespace folio {
namespace {

using dsml::Match;
using dsml::Tag;
using Npos = std::string_view;

constexpr std::string_view kTypeBegin = "\" string=\"";
constexpr std::string_view kTypeTrue = "true\">";
constexpr std::string_view kTypeFalse = "false\">";
constexpr std::string_view kUntypedEnd = "\">";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && dsml::is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && dsml::is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<Json> parsed(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// How much of `text` is certainly before `marker`, of which its end may be the beginning.
size_t before_partial(std::string_view text, std::string_view marker) {
  for (size_t at = text.size() - std::min(text.size(), marker.size() - 1); at < text.size(); ++at) {
    if (marker.starts_with(text.substr(at))) return at;
  }
  return text.size();
}

// Where the key of a parameter ends, and what follows it.
struct KeyEnd {
  enum class Kind : uint8_t { kUnknown, kMalformed, kString, kJson, kUntyped } kind;
  size_t key = 0;  // bytes of the key
  size_t tag = 0;  // bytes to the end of the tag
};

// `complete`: no more text will come. The key is the shortest text before a string attribute, so it may have quotes in
// it; where there is no attribute before the next marker, it ends with the tag.
KeyEnd find_key_end(std::string_view text, size_t from, bool complete) {
  using Kind = KeyEnd::Kind;
  const size_t marker = text.find(dsml::kMarker, from > dsml::kMarker.size() ? from - dsml::kMarker.size() : 0);
  for (size_t at = text.find(kTypeBegin, from); at < std::min(marker, text.size());
       at = text.find(kTypeBegin, at + 1)) {
    const size_t value = at + kTypeBegin.size();
    if (text.substr(value).starts_with(kTypeTrue)) return {Kind::kString, at, value + kTypeTrue.size()};
    if (text.substr(value).starts_with(kTypeFalse)) return {Kind::kJson, at, value + kTypeFalse.size()};
  }
  if (marker == Npos::npos && !complete) return {Kind::kUnknown};
  const size_t end = text.substr(0, marker).find(kUntypedEnd);
  if (end == Npos::npos) return {Kind::kMalformed};
  return {Kind::kUntyped, end, end + kUntypedEnd.size()};
}

}  // namespace

void CallParser::push(std::string_view text, std::vector<Delta>& out) {
  if (done()) {
    drop_text(text);
    return;
  }
  pending_.erase(0, at_);
  at_ = 0;
  pending_ += text;
  while (step(out)) {
  }
}

bool CallParser::step(std::vector<Delta>& out) {
  switch (state_) {
    case State::kCalls:
      return calls();
    case State::kName:
      return name();
    case State::kTagEnd:
      return tag_end(out);
    case State::kParameters:
      return parameters(out);
    case State::kKey:
      return key(false, out);
    case State::kValue:
      return value(out);
    case State::kValueEnd:
      return value_end(out);
    case State::kBody:
      return body(out);
    case State::kDone:
      drop(rest().size());
      return false;
  }
  return false;
}

void CallParser::drop_text(std::string_view text) {
  dropped_ += static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !dsml::is_space(c); }));
}

void CallParser::drop(size_t count) {
  drop_text(rest().substr(0, count));
  take(count);
}

bool CallParser::calls() {
  const auto [at, match] = dsml::find(rest(), 0, dsml::call_tags());
  drop(at);
  if (match.kind != Match::Kind::kFull) return false;
  take(match.spelling.text.size());
  enter(match.spelling.tag == Tag::kInvoke ? State::kName : State::kDone);
  return true;
}

bool CallParser::name() {
  const std::string_view text = rest();
  const size_t end = text.find_first_of("\"\n");
  if (end == Npos::npos && text.size() <= kMaxToolName) return false;
  if (end > kMaxToolName || text[end] == '\n') {
    enter(State::kCalls);
    return true;
  }
  name_ = text.substr(0, end);
  take(end + 1);
  enter(State::kTagEnd);
  return true;
}

bool CallParser::tag_end(std::vector<Delta>& out) {
  const std::string_view text = rest();
  const size_t end = text.find('>', scanned_);
  if (end == Npos::npos) {
    scanned_ = text.size();
    return false;
  }
  const bool is_closed = end > 0 && text[end - 1] == '/';
  take(end + 1);
  tool_ = tools_ != nullptr ? find_tool(*tools_, name_) : nullptr;
  keys_.clear();
  fresh_ = true;
  out.push_back({Delta::Kind::kCall, name_, begun_++});
  if (is_closed) {
    complete(State::kCalls, out);
  } else {
    enter(State::kParameters);
  }
  return true;
}

bool CallParser::parameters(std::vector<Delta>& out) {
  const std::string_view text = rest();
  const auto begin = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), dsml::is_space) - text.begin());
  if (begin > 0) {
    take(begin);
    return true;
  }
  if (text.empty()) return false;
  if (text[0] == '{' && fresh_) {
    enter(State::kBody);
    return true;
  }
  const Match found = dsml::match(text, dsml::parameter_tags());
  if (found.kind == Match::Kind::kPartial) return false;
  fresh_ = false;
  if (found.kind == Match::Kind::kNone) {
    drop(std::min(text.find('<', 1), text.size()));
    return true;
  }
  switch (found.spelling.tag) {
    case Tag::kParameter:
      take(found.spelling.text.size());
      enter(State::kKey);
      break;
    case Tag::kInvoke:  // the closer was forgotten; the next call is read from its opener
      complete(State::kCalls, out);
      break;
    default:
      take(found.spelling.text.size());
      complete(found.spelling.tag == Tag::kEndInvoke ? State::kCalls : State::kDone, out);
  }
  return true;
}

bool CallParser::key(bool at_end, std::vector<Delta>& out) {
  const std::string_view text = rest();
  const KeyEnd end = find_key_end(text, scanned_, at_end);
  if (end.kind == KeyEnd::Kind::kUnknown) {
    const size_t overlap = kTypeBegin.size() + kTypeFalse.size();
    scanned_ = text.size() - std::min(text.size(), overlap);
    return false;
  }
  if (end.kind == KeyEnd::Kind::kMalformed) {
    enter(State::kParameters);
    return true;
  }
  key_ = text.substr(0, end.key);
  is_string_ = end.kind == KeyEnd::Kind::kString;
  take(end.tag);
  begin_value(out);
  return true;
}

void CallParser::begin_value(std::vector<Delta>& out) {
  const bool is_first = keys_.empty();
  unwrap_ =
      is_first && (key_ == "arguments" || key_ == "input") && parameter_type(tool_, key_) == ParameterType::kUndeclared;
  if (keys_.contains(key_)) {
    mode_ = ValueMode::kDiscard;
  } else if (is_string_ && !unwrap_) {
    mode_ = ValueMode::kStream;
    write_key(key_, out);
    arguments("\"", out);
  } else {
    mode_ = ValueMode::kHold;
  }
  enter(State::kValue);
}

bool CallParser::value(std::vector<Delta>& out) {
  const std::string_view text = rest();
  const size_t end = text.find(dsml::kClose, scanned_);
  const size_t certain = end != Npos::npos ? end : before_partial(text, dsml::kClose);
  if (mode_ == ValueMode::kStream) {
    std::string escaped;
    append_json_escaped(text.substr(0, certain), escaped);
    arguments(escaped, out);
    take(certain);
  } else if (end == Npos::npos) {
    scanned_ = certain;
  } else if (mode_ == ValueMode::kHold) {
    write_held(text.substr(0, end), out);
    take(end);
  } else {
    drop(end);
  }
  if (end == Npos::npos) return false;
  if (mode_ == ValueMode::kStream) arguments("\"", out);
  take(dsml::kClose.size());
  enter(State::kValueEnd);
  return true;
}

bool CallParser::value_end(std::vector<Delta>& out) {
  const std::string_view text = rest();
  const size_t end = text.find('>', scanned_);
  if (end == Npos::npos) {
    scanned_ = text.size();
    return false;
  }
  const std::string word(trimmed(text.substr(0, end)));
  take(end + 1);
  if (word == "invoke") {
    complete(State::kCalls, out);
  } else if (dsml::is_block_word(word)) {
    complete(State::kDone, out);
  } else {
    enter(State::kParameters);
  }
  return true;
}

bool CallParser::body(std::vector<Delta>& out) {
  const std::string_view text = rest();
  const size_t end = text.find(dsml::kClose, scanned_);
  if (end == Npos::npos) {
    scanned_ = before_partial(text, dsml::kClose);
    return false;
  }
  if (const auto object = parsed(text.substr(0, end)); object && object->object() != nullptr) {
    write_members(*object->object(), out);
    take(end);
  } else {
    drop(end);
  }
  fresh_ = false;
  enter(State::kParameters);
  return true;
}

void CallParser::arguments(std::string_view text, std::vector<Delta>& out) {
  append_delta(out, Delta::Kind::kArguments, text, begun_ - 1);
}

void CallParser::write_key(const std::string& key, std::vector<Delta>& out) {
  arguments(keys_.empty() ? "{" : ", ", out);
  arguments(json_quote(key) + ": ", out);
  keys_.insert(key);
}

void CallParser::write_members(const Json::Object& members, std::vector<Delta>& out) {
  for (const Json::Member& member : members) {
    if (keys_.contains(member.key)) continue;
    write_key(member.key, out);
    arguments(json_text(member.value), out);
  }
}

// A value that had to be complete before it was certain what it is.
void CallParser::write_held(std::string_view text, std::vector<Delta>& out) {
  const std::optional<Json> json = parsed(text);
  if (unwrap_ && json && json->object() != nullptr && declares_all(tool_, *json->object())) {
    write_members(*json->object(), out);
    return;
  }
  const ParameterType type = parameter_type(tool_, key_);
  bool is_json = json.has_value() && !is_string_;
  if (is_json && json->string() == nullptr) {
    if (type == ParameterType::kString) is_json = false;
    if (type == ParameterType::kStringOrNull) is_json = json->is_null();
  }
  write_key(key_, out);
  arguments(is_json ? std::string(trimmed(text)) : json_quote(text), out);
}

void CallParser::complete(State next, std::vector<Delta>& out) {
  arguments(keys_.empty() ? "{}" : "}", out);
  out.push_back({Delta::Kind::kCallEnd, "", begun_ - 1});
  ++completed_;
  enter(next);
}

void CallParser::finish(bool stopped, std::vector<Delta>& out) {
  while (state_ == State::kKey && key(true, out)) {
  }
  if (!stopped) return;
  if (state_ == State::kBody) {  // complete if it is an object, although nothing closed it
    const auto object = parsed(rest());
    if (!object || object->object() == nullptr) return;
    write_members(*object->object(), out);
  } else if (state_ != State::kParameters && state_ != State::kValueEnd) {
    return;
  }
  complete(State::kDone, out);
}

}  // namespace folio
