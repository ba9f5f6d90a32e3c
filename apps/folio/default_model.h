// The model that `folio` uses when none is named.
#pragma once

#include <cstdint>
#include <string>

namespace folio {

// Directory of the default model: $FOLIO_MODEL, or else the model that is part of the program, unpacked on first use
// into the user's cache directory ($XDG_CACHE_HOME/folio or ~/.cache/folio). Throws Error(kInvalidArgument) when there
// is no place to put it.
std::string default_model_dir();

// Directory of the random checkpoint of `preset` in the same cache directory, made on first use, with progress on a
// terminal.
std::string preset_model_dir(const std::string& preset);

// Number of Engram's compressed ids of a tokenizer.json, for SynthesizeOptions. Throws Error(kInvalidTokenizer).
int64_t count_compressed_ids(const std::string& tokenizer_path);

}  // namespace folio
