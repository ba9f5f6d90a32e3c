#include "ops/ref/reference_ops.h"

namespace folio {

void ReferenceOps::rotate(const RotateArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* rope = args.rope + r * args.pairs * 2;
    for (int64_t h = 0; h < args.heads; ++h) {
      bf16* tail = args.x + (r * args.heads + h + 1) * args.dim - 2 * args.pairs;
      for (int64_t j = 0; j < args.pairs; ++j) {
        const float cos = rope[2 * j], sin = args.inverse ? -rope[2 * j + 1] : rope[2 * j + 1];
        const float a = to_float(tail[2 * j]), b = to_float(tail[2 * j + 1]);
        tail[2 * j] = to_bf16(a * cos - b * sin);
        tail[2 * j + 1] = to_bf16(a * sin + b * cos);
      }
    }
  }
}

}  // namespace folio
