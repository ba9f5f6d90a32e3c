// The text of an answer, as a reader may see it while its tokens arrive.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_strings.h"

namespace folio {

// Whole characters only, hidden tokens left out, and nothing from a stop string on: a Detokenizer with StopStrings
// behind it. `tokenizer` must outlive it.
class AnswerText {
 public:
  // Throws Error(kInvalidArgument) when a stop string is empty.
  explicit AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops = {})
      : detokenizer_(tokenizer), stops_(std::move(stops)) {}

  // The text that token `id` makes certain. Throws Error(kInvalidArgument) on an unknown id.
  std::string push(int32_t id) { return stops_.push(detokenizer_.push(id)); }
  // The rest, when the answer ends here.
  std::string finish() {
    std::string text = stops_.push(detokenizer_.flush());
    return text + stops_.flush();
  }
  // A stop string has come; no more text will.
  bool stopped() const { return stops_.stopped(); }

 private:
  Detokenizer detokenizer_;
  StopStrings stops_;
};

}  // namespace folio
