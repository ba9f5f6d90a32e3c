// What a row of a step must move and compute at least: the denominators of benchmarks.
#pragma once

#include "cache/geometry.h"
#include "checkpoint/config.h"
#include "model/topology.h"

namespace folio {

struct RowCost {
  double bytes = 0;
  double flops = 0;  // two per multiply-add of a matrix product

  RowCost& operator+=(const RowCost& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

// Of the weights that one row meets: their published bytes, each once, and its products with them. A row that needs no
// logits (`head` false) has no head, and in the last layer only its key.
RowCost weight_cost(const Config& config, bool head);

// Of attention and index selection at `position`: the cached rows that it reads, its scores and value products.
RowCost attention_cost(const Config& config, const Topology& topology, const Geometry& geometry, int64_t position,
                       bool head);

}  // namespace folio
