#include "tokenizer_flags.h"

#include <CLI/CLI.hpp>

#include "default_model.h"

namespace folio {

void add_tokenizer_flags(CLI::App& command, TokenizerFlags& flags) {
  auto* model = command
                    .add_option("--model", flags.model,
                                "Checkpoint directory with a tokenizer.json (default: the built-in model)")
                    ->type_name("DIR");
  command.add_option("--tokenizer", flags.file, "A tokenizer.json by itself")->type_name("FILE")->excludes(model);
}

Tokenizer load_tokenizer(const TokenizerFlags& flags) {
  if (!flags.file.empty()) return Tokenizer::load(flags.file);
  return Tokenizer::load(flags.model.empty() ? default_model_dir() : flags.model);
}

}  // namespace folio
