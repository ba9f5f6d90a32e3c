// Observes what calibration needs: drafted blocks of real answers, and what steps take on this machine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/calibration.h"
#include "engine/model_runner.h"
#include "engine/request.h"

namespace folio {

// Told between two steps how far the work has come, from 0 to 1. Whoever wants to end it throws.
using CalibrationProgress = std::function<void(const std::string& what, double done)>;

struct ObservedDrafts {
  std::vector<DraftBlock> blocks;
  // Prompts with their answers, one after the other: text as this model meets it.
  std::vector<int32_t> text;
};

// Answers the prompts and looks at every draft on the way: an answer has the same tokens whatever is drafted, so that
// it says itself how many of a block's drafts are right, also of those that no step verified. The requests need no
// sinks. `runner` has a draft head and room for as many requests as its options say. Throws Error(kInvalidArgument) for
// a prompt that is refused.
ObservedDrafts observe_drafts(ModelRunner& runner, const std::vector<std::shared_ptr<Request>>& requests,
                              const CalibrationProgress& progress);

struct MeasureLimits {
  int32_t max_num_seqs = 1;
  double seconds = 60;  // for all rounds; kLeastRounds are run whatever they take
  static constexpr int kLeastRounds = 1;
  static constexpr int kMostRounds = 15;
};

struct MeasuredSteps {
  struct Point {
    int32_t requests = 0;
    int32_t rows_each = 0;
    double seconds = 0;  // of a forward, the lower quartile
  };
  std::vector<Point> points;
  std::vector<std::vector<TimedStep>> drafts;  // [width - 1] of the draft head, by requests
  int rounds = 0;
  std::vector<TimedStep> forwards() const;  // the points by their rows
};

// Times forwards of 1, 2, 4, ... max_num_seqs requests with 1 .. draft width + 1 rows each, and behind those with
// drafts the draft head for blocks as wide, by turns. The rows are those of `text`, every row goes through the head and
// is sampled. `runner` has that many free slots.
MeasuredSteps measure_steps(ModelRunner& runner, const std::vector<int32_t>& text, const MeasureLimits& limits,
                            const CalibrationProgress& progress);

// Positions that a sequence of measure_steps() needs at least; it uses more where it may.
int64_t measured_context(int32_t draft_width);

}  // namespace folio
