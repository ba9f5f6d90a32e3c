// What the values of a config.json must satisfy together (spec/model.md 1, spec/runtime.md 8.2).
#pragma once

#include "checkpoint/config.h"
#include "checkpoint/config_section.h"

namespace folio {

constexpr int64_t kQuantBlock = 32;          // elements along the input that share a scale
constexpr int64_t kMaxEngramColumns = 1024;  // hash columns over all layers

// Notes in `text`, the `text_config` that `config` was read from, every rule that does not hold. A rule about members
// that could not be read is passed over.
void check_config(ConfigSection& text, const Config& config);

}  // namespace folio
