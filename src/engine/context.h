// Long contexts without a long prefill, for measurements.
#pragma once

#include "engine/sequence.h"

namespace folio {

// Makes `sequence` (still empty) look as if `tokens` tokens had been run: window rings, main rows and index keys hold
// seeded random rows in the cache's formats, the cursor stands at `tokens`. Values are valid, not meaningful.
void install_random_context(ModelRunner& runner, Sequence& sequence, int64_t tokens, uint64_t seed);

}  // namespace folio
