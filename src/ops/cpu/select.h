// The k largest of many bf16 scores, in linear time.
#pragma once

#include <cstdint>

namespace folio::cpu {

// Turns bf16 bits into integers of the same order, in place: -0 equals +0, -infinity and what is below becomes 0.
void order_scores(uint16_t* scores, int64_t n);

// Indices of the k largest of n ordered scores, ascending, into out[k]; the lowest index wins ties, zeros are never
// taken. Returns their number. Three passes over the scores at most.
int64_t select_largest(const uint16_t* ordered, int64_t n, int64_t k, int32_t* out);

}  // namespace folio::cpu
