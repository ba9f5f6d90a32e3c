#include "tokenizer/stop_strings.h"

#include <algorithm>

#include "base/error.h"

namespace folio {
namespace {

// Length of the longest prefix of `text` that the input ends with after `next` (Knuth, Morris, Pratt).
size_t advance(std::string_view text, const std::vector<size_t>& borders, size_t length, char next) {
  while (length > 0 && (length == text.size() || text[length] != next)) length = borders[length - 1];
  return text[length] == next ? length + 1 : 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) fail(ErrorCode::kInvalidArgument, "a stop string is empty: leave it out or give it some text");
    Stop stop{std::move(text), {0}};
    for (size_t i = 1; i < stop.text.size(); ++i) {
      stop.borders.push_back(advance(stop.text, stop.borders, stop.borders.back(), stop.text[i]));
    }
    stops_.push_back(std::move(stop));
  }
}

std::string StopStrings::push(std::string_view text) {
  if (stopped()) return {};
  const size_t before = held_.size();
  held_.append(text);
  size_t partial = 0;
  for (size_t at = before; at < held_.size(); ++at) {
    partial = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      stop.length = advance(stop.text, stop.borders, stop.length, held_[at]);
      partial = std::max(partial, stop.length);
      const bool complete = stop.length == stop.text.size();
      if (complete && (!stopped() || stop.length > matched().size())) matched_ = static_cast<int>(i);
    }
    if (stopped()) {
      std::string shown = held_.substr(0, at + 1 - matched().size());
      held_.clear();
      return shown;
    }
  }
  if (text.empty()) return {};
  std::string shown = held_.substr(0, held_.size() - partial);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::flush() {
  std::string tail;
  tail.swap(held_);
  for (Stop& stop : stops_) stop.length = 0;
  return tail;
}

}  // namespace folio
