// What a parser of answers gives out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace folio {

struct Delta {
  enum class Kind : uint8_t {
    kReasoning,  // text
    kContent,    // text
    kCall,       // a call begins: text is its qualified name, no arguments yet
    kArguments,  // text is the next part of its arguments, JSON
    kCallEnd,    // its arguments are complete
  };
  Kind kind;
  std::string text = {};
  int32_t call = 0;  // index of the call, from 0
  bool operator==(const Delta&) const = default;
};

// How a generation ended.
enum class AnswerEnd : uint8_t {
  kStop,  // the model ended it, or a stop string or stop id
  kLength,
  kAbort,
};

// Appends `text` to the last delta if that is of the same kind and call, else a new one. Empty text appends nothing.
void append_delta(std::vector<Delta>& deltas, Delta::Kind kind, std::string_view text, int32_t call = 0);

}  // namespace folio
