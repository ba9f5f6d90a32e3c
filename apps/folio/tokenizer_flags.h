// Which tokenizer a command uses that needs no weights.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "tokenizer/tokenizer.h"

namespace folio {

struct TokenizerFlags {
  std::string model;
  std::string file;
};

// Declares --model and --tokenizer on `command`.
void add_tokenizer_flags(CLI::App& command, TokenizerFlags& flags);

// Throws Error(kNotFound, kInvalidTokenizer).
Tokenizer load_tokenizer(const TokenizerFlags& flags);

}  // namespace folio
