// The text and the questions of an evaluation suite, as tools/train/eval_data.py writes them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace folio {

// Held-out documents of one kind, one after another.
struct EvalDomain {
  std::string name;
  std::vector<int32_t> tokens;  // of all documents
};

// What a conversation of the held-out chat had been told when one of its answers began.
struct EvalTurn {
  std::string kind;  // plain, thinking, tools or json
  std::vector<int32_t> prompt;
};

// A question and what the answer to it must hold: a line of a file of prompts.
struct EvalQuestion {
  std::vector<int32_t> prompt;
  nlohmann::json expected;  // the line's other fields
};

struct EvalSuite {
  std::vector<EvalDomain> domains;  // chat, entries, stories
  std::vector<EvalTurn> turns;
  std::vector<EvalQuestion> recall;      // expected: "phrase", "gloss"
  std::vector<EvalQuestion> tool_calls;  // expected: "name", "arguments"
  std::vector<EvalQuestion> objects;     // expected: "keys"

  const EvalDomain& domain(const std::string& name) const;

  // Reads the suite from a directory, "" for the one in the program. Throws Error(kNotFound, kInvalidArgument) with the
  // file and the line for what is not there or not such a suite.
  static EvalSuite load(const std::string& dir, const Tokenizer& tokenizer);
};

// Bytes that tokens stand for in text: special tokens count none.
int64_t text_bytes(const Tokenizer& tokenizer, std::span<const int32_t> tokens);

}  // namespace folio
