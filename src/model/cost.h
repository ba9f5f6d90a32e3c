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

// Weights that a step reads, in published bytes, each once: a step of so many rows, all of them through the head, and
// the draft head for so many requests with `width` rows each. Of the routed experts as many as so many rows meet on
// average if every row picks its own at random. The rows' own part in the draft's context belongs to the step. The
// Markov head is read once for each row of a block (spec/model.md 9.3).
double step_weight_bytes(const Config& config, int64_t rows, bool drafts);
double draft_weight_bytes(const Config& config, int64_t requests, int32_t width);

// Of attention and index selection at `position`: the cached rows that it reads, its scores and value products.
RowCost attention_cost(const Config& config, const Topology& topology, const Geometry& geometry, int64_t position,
                       bool head);

}  // namespace folio
