// What a step must move and compute at least: the denominators of benchmarks and of `folio inspect`.
#pragma once

#include "cache/geometry.h"
#include "checkpoint/config.h"
#include "model/topology.h"

namespace folio {

struct StepCost {
  double weight_bytes = 0;  // published bytes of the weights that one row touches, each once
  double cache_bytes = 0;   // cached rows that one row reads
  double flops = 0;         // of the matrix products, attention and index scores of one row

  double bytes() const { return weight_bytes + cache_bytes; }
};

// One row with `context` positions before it; `head`: it goes through the LM head.
StepCost row_cost(const Config& config, const Topology& topology, const Geometry& geometry, int64_t context, bool head);

}  // namespace folio
