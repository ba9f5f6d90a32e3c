// Finds stop strings in text that arrives in parts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace folio {

// Watches streamed text for any of several stop strings. The stop that completes first wins, of those that complete at
// the same byte the longest; so the result does not depend on how the text was cut into parts.
class StopStrings {
 public:
  // Throws Error(kInvalidArgument) when a stop string is empty. No stop strings: everything passes.
  explicit StopStrings(std::vector<std::string> stops);

  // Takes the next part of the text and returns what can be shown: all that is certainly before a stop. A tail that
  // may be the beginning of a stop is held back. After a stop nothing more is returned.
  std::string push(std::string_view text);

  // The held back tail, when the text ends without a stop.
  std::string flush();

  bool stopped() const { return matched_ >= 0; }

  // The stop string that was found; only when stopped().
  const std::string& matched() const { return stops_[static_cast<size_t>(matched_)].text; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> borders;  // [i]: longest proper prefix of text[0..i] that is also its suffix
    size_t length = 0;            // how much of `text` the input ends with
  };

  std::vector<Stop> stops_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace folio
