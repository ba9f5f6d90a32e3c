// Configurations that Folio knows by name: the published one and the small ones of random checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace folio {

// The released config.json, byte for byte.
std::string published_config_json();

// Names of the presets, smallest first: nano, slots, heads, mini, bench-cpu.
const std::vector<std::string>& preset_names();

// config.json of a preset. `vision` adds a small tower. `compressed_vocab_size` is what the token map of its
// tokenizer.json counts. Throws Error(kInvalidArgument) for an unknown name.
std::string preset_config_json(const std::string& name, bool vision, int64_t compressed_vocab_size);

// tokenizer.json of random checkpoints: a byte-level BPE of exactly `vocab_size` ids, with 3 specials, 256 bytes,
// common words in several spellings (so that the compressed vocabulary merges ids), numbers as fillers, and a noise and
// an image token.
std::string tiny_tokenizer_json(int64_t vocab_size, int64_t noise_id, int64_t image_id);

}  // namespace folio
