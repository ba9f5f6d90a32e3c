// Prepared weights: handles made once by Ops::prepare. Nothing but the backend that made one knows its layout; a CPU
// handle may alias the mapped checkpoint, so the mapping must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/view.h"

namespace folio {

enum class WeightKind : uint8_t {
  kVector,   // BF16 or F32 [n] or [m, n]: norm weights, sinks, biases, hyper-connection scale and base; used as fp32
  kF32,      // F32 [out, in]: hyper-connection projections
  kBf16,     // BF16 [out, in]: plain linears, the head, the embedding table
  kFp8,      // E4M3 [out, in] with UE8M0 [ceil(out/32), ceil(in/32)]: quantised linears and wo_a (spec 3.6)
  kFp8Rows,  // E4M3 [rows, dim] with UE8M0 [rows, dim/32]: Engram tables, only ever read by row
  kExperts,  // FP4 routed experts and the FP8 shared expert of one layer
};

// The published tensors of one weight; `scale` only for the quantised kinds.
struct WeightViews {
  TensorView weight;
  TensorView scale;
};

// The three projections of one expert: w1 gate [inner, hidden], w3 up [inner, hidden], w2 down [hidden, inner].
struct ExpertViews {
  WeightViews w1, w3, w2;
};

class Weight {
 public:
  virtual ~Weight() = default;
  WeightKind kind() const { return kind_; }
  int64_t out() const { return out_; }  // rows; 1 for a vector
  int64_t in() const { return in_; }    // columns

 protected:
  Weight(WeightKind kind, int64_t out, int64_t in) : kind_(kind), out_(out), in_(in) {}

 private:
  WeightKind kind_;
  int64_t out_;
  int64_t in_;
};

using WeightHandle = std::unique_ptr<const Weight>;

}  // namespace folio
