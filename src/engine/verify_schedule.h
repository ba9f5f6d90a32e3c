// Dynamic verification (spec runtime 7.7): how many drafts of each request a step verifies. Everything follows from
// confidences, from what became of drafts, and from costs that were measured once, never from a clock, so that the same
// requests give the same steps. How wide the blocks are is decided in engine/draft_controller.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace folio {

// What steps take on one machine, as `folio calibrate` measures it.
struct StepCosts {
  std::vector<double> steps_per_second;  // [rows] of forwards by their number of rows; not increasing
  // [width - 1][requests] of the draft head by the width of its blocks and the requests that draft; not decreasing
  std::vector<std::vector<double>> draft_seconds;

  // Seconds of a forward. Beyond the table as at its end.
  double forward_seconds(int64_t rows) const;
  // Seconds of the draft head for blocks of `width` drafts, 0 without any. Beyond the table as at its end.
  double drafting_seconds(int64_t requests, int32_t width) const;
};

// The probability that a draft is accepted if those before it are: the draft head's logit, bounded to probabilities
// within 1e-6 of 0 and 1, over the temperature of its position.
double calibrated_confidence(double logit, double temperature);

// What the confidences of a block are worth. The temperatures of a profile hold for texts like those that it was made
// from and for blocks of its width. For others the calibrated confidence of a position is scaled by what became of
// recent drafts there: those that were accepted over those that were expected to be.
class AcceptanceModel {
 public:
  // One temperature for each position of a block.
  explicit AcceptanceModel(std::vector<double> temperatures);

  // [drafts] the probability that drafts 0 .. i of a block are all accepted. `logits` are the draft head's of its first
  // drafts, no more than there are temperatures.
  std::vector<double> survivals(std::span<const float> logits) const;
  // A block has been through a step: its first `verified` drafts were verified, the first `accepted` accepted. What was
  // seen before counts a little less with every block, verified or not: no verdict is for ever.
  void observe(std::span<const float> logits, int32_t verified, int32_t accepted);

 private:
  static constexpr double kPrior = 8;               // drafts that count as accepted as expected
  static constexpr double kMemory = 1 - 1.0 / 256;  // what a block leaves of the ones before it
  struct Record {
    double expected = 0, accepted = 0;
    double correction() const { return (kPrior + accepted) / (kPrior + expected); }
  };

  std::vector<double> temperatures_;
  std::vector<Record> records_;  // by position
};

struct VerifyPlan {
  std::vector<int32_t> lengths;  // drafts to verify, for each request
  double tokens = 0;             // expected of the step
  double seconds = 0;            // of its forward, and of the draft head for so many blocks
};

// The drafts to verify so that tokens come fastest. `survivals`: of every decoding request of the step, in its order;
// none where it has no drafts. Only the first `width` drafts of each count, as if blocks were no wider. The most
// probable drafts are admitted first, as many as give the most expected tokens a second. A whole prefix of each
// request's drafts, since survival does not rise along them.
VerifyPlan plan_verification(std::span<const std::vector<double>> survivals, int32_t width, const StepCosts& costs);

}  // namespace folio
