// The k largest of many scores, in linear time. Score: uint16_t (the bits of a bf16) or uint32_t (of an fp32).
#pragma once

#include <cstdint>

namespace folio::cpu {

// Turns floating-point bits into integers of the same order, in place: -0 equals +0, -infinity and what is below
// becomes 0.
template <typename Score>
void order_scores(Score* scores, int64_t n);

// Indices of the k largest of n ordered scores, ascending, into out[k]; the lowest index wins ties, zeros are never
// taken. Returns their number. A pass over the scores for each byte of one, and one more.
template <typename Score>
int64_t select_largest(const Score* ordered, int64_t n, int64_t k, int32_t* out);

}  // namespace folio::cpu
