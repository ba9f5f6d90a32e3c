// Dynamic verification (spec runtime 7.7): how many drafts of each request a step verifies, and whether drafting pays
// at all. Everything follows from confidences and from costs that were measured once, never from a clock, so that the
// same requests give the same steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace folio {

// What steps take on one machine, as `folio calibrate` measures it.
struct StepCosts {
  std::vector<double> steps_per_second;  // [rows] of forwards by their number of rows; not increasing
  std::vector<double> draft_seconds;     // [requests] of the draft head by the requests that draft; not decreasing

  // Seconds of a forward. Beyond the table as at its end.
  double forward_seconds(int64_t rows) const;
  // Seconds of the draft head. Beyond the table as at its end.
  double drafting_seconds(int64_t requests) const;
};

// The probability that a draft is accepted if those before it are: the draft head's logit, bounded to probabilities
// within 1e-6 of 0 and 1, over the temperature of its position.
double calibrated_confidence(double logit, double temperature);

// [drafts] the probability that drafts 0 .. i of a request are all accepted. `logits` are the draft head's of the first
// drafts; there are at least as many temperatures.
std::vector<double> survivals(std::span<const float> logits, std::span<const double> temperatures);

struct VerifyPlan {
  std::vector<int32_t> lengths;  // drafts to verify, for each request
  double tokens = 0;             // expected of the step
  double seconds = 0;            // of its forward
  // By how much longer the same tokens would take without drafts, the draft head's time not counted; 0 or more.
  double gain_seconds = 0;
};

// The drafts to verify so that tokens come fastest. `survivals`: of every decoding request of the step, in its order;
// none where it has no drafts. The most probable drafts are admitted first, as many as give the most expected tokens a
// second. A whole prefix of each request's drafts, since survival does not rise along them.
VerifyPlan plan_verification(std::span<const std::vector<double>> survivals, const StepCosts& costs);

// Whether requests draft: all the time while it pays, else every now and then, to see whether it pays again.
class DraftController {
 public:
  // Steps over which gain and cost are compared, and from one trial to the next while drafting does not pay.
  static constexpr int kPatience = 16;
  static constexpr int kTrialInterval = 32;
  // Of a plain step. A draft head that takes longer loses patience sooner and is tried more seldom, so that what it
  // costs in vain stays the same.
  static constexpr double kDearDraft = 0.5;

  // A step that could verify drafts: its predicted gain, what those drafts took, and what the step takes without any.
  void observe(double gain_seconds, double draft_seconds, double plain_seconds);
  // Whether the requests of the next step draft. Asked once for each step that has some that could.
  bool next_step_drafts();
  bool skipping() const { return skipping_; }

 private:
  void start();

  bool skipping_ = false;
  int observed_ = 0;                // since drafting began
  double balance_[kPatience] = {};  // gain less cost of the latest
  int64_t interval_ = kTrialInterval;
  int64_t skipped_ = 0;  // steps since the last trial
};

}  // namespace folio
