// Fits a calibration profile to observations: temperatures to drafted blocks, tables of costs to timed steps. The
// observations come from engine/calibration_run.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/verify_schedule.h"

namespace folio {

// The drafts that were proposed behind one token of an answer, and what the answer says there without them.
struct DraftBlock {
  std::vector<float> logits;  // the draft head's confidences
  int32_t accepted = 0;       // leading drafts that equal the answer's tokens
  int32_t known = 0;          // tokens that the answer goes on for, up to the block's width

  // Whether it is known if drafts 0 .. position were all right. Not so behind the end of an answer, even if an earlier
  // draft was wrong: to count only those would make drafts look worse than they are.
  bool knows(int32_t position) const { return position < known; }
  bool survives(int32_t position) const { return position < accepted; }
};

struct ReliabilityBin {
  int64_t blocks = 0;
  double predicted = 0, observed = 0;  // means over its blocks; 0 without any
};

// How well the survival of a position is predicted: fifteen bins of equal width over the predicted probability, 1 in
// the last.
struct Reliability {
  static constexpr int kBins = 15;
  std::array<ReliabilityBin, kBins> bins;
  int64_t blocks = 0;   // that know the position
  double ece = 0;       // expected calibration error: mean |predicted - observed| of the bins, weighted by their blocks
  double log_loss = 0;  // mean surprise at what happened, in nats
};

// Of the survival of drafts 0 .. position.
Reliability reliability(std::span<const DraftBlock> blocks, int32_t position, std::span<const double> temperatures);

// [width] temperatures, one position after the other: each of 161 values in geometric steps from 1/4 to 4 is tried. Of
// those with the least ECE of the survival, as far as so many blocks can tell, the one with the least log loss is
// taken: the ECE alone hardly moves around its minimum; 1 unless another is better by more than luck. Throws
// Error(kInvalidArgument) for a position that no block knows anything about.
std::vector<double> fit_temperatures(std::span<const DraftBlock> blocks, int32_t width);

// What a step of `size` rows, or a draft for `size` requests, took.
struct TimedStep {
  int64_t size = 0;
  double seconds = 0;
};

// Of times of the same work. Other work on the machine only ever adds to a time: with it the lower quartile is nearer
// to the truth than the median, without it the two are the same. There is at least one.
double lower_quartile(std::vector<double> seconds);

// [size + 1] seconds by size: the slowest of the points of a size, never less than what fewer take, lines in between,
// flat before the first point and behind the last. There is at least one point.
std::vector<double> latency_envelope(std::span<const TimedStep> points, int64_t size);

// The tables of a profile for so many requests: of forwards by their rows, and of the draft head, `drafts[width - 1]`,
// by requests for each width of a block. Each has at least one point.
StepCosts step_costs(std::span<const TimedStep> forwards, std::span<const std::vector<TimedStep>> drafts,
                     int32_t max_num_seqs);

}  // namespace folio
