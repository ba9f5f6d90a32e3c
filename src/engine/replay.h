// The arithmetic of bounded replay and of cutting prefills into chunks (spec runtime 4.1, 3.2). Pure functions.
#pragma once

#include <cstdint>

namespace folio {

// First position that the decoder layers run for a prompt of `prompt_length` tokens: its last `window` rows.
int64_t decoder_tail_start(int64_t prompt_length, int64_t window);

struct ChunkLimits {
  int64_t budget = 0;     // rows that the step has left
  int64_t threshold = 0;  // long_prefill_token_threshold; 0 = none
  int64_t tail = 0;       // rows that the finishing chunk must hold; 0 without decoder replay
  int32_t block = 1;      // chunks that do not finish end on a multiple of it where they can
};

// Rows of the next chunk of a prefill at position `begin` with `due` rows to go; 0: wait for a step with more room. A
// chunk that does not finish leaves at least `tail` rows for the one that does, so that the decoder's rows run
// together.
int64_t chunk_rows(int64_t begin, int64_t due, const ChunkLimits& limits);

}  // namespace folio
