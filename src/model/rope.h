// Rotation frequencies (spec/model.md 5.3).
#pragma once

#include <vector>

#include "checkpoint/config.h"

namespace folio {

// fp32 frequencies [qk_rope_head_dim / 2]. `compressed`: of layers with a compression ratio, which use another base and
// YaRN; otherwise of window-only layers.
std::vector<float> rope_frequencies(const Config& config, bool compressed);

}  // namespace folio
