// How wide the blocks are that requests draft, from none to the widest (spec runtime 7.7 and docs/speculation.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace folio {

// What a step with drafts gives and takes, as multiples of what one without gives and takes.
struct StepValue {
  double tokens = 1;
  double seconds = 1;  // with the draft head's
  double speedup() const { return tokens / seconds; }
};

// Chooses the width that has lately been worth most, and none while no width is worth its price. Every now and then it
// has a step draft the widest blocks, to see whether that has changed. Steps that are worth less than one without
// drafts are paid from a credit that grows slowly: whatever comes, over a thousand steps no more than kCredit + 1000 *
// kRefill plain steps are lost by what is expected of blocks, and one step's loss for each width.
class DraftController {
 public:
  static constexpr int kPatience = 16;        // steps before a width is chosen; as many values speak for it
  static constexpr int kTrialInterval = 32;   // steps from one trial to the next, at least
  static constexpr int kMemory = 128;         // steps after which a value speaks no more
  static constexpr double kCredit = 4;        // plain steps that may be lost before one is gained
  static constexpr double kRefill = 0.005;    // plain steps, with every step
  static constexpr double kLeastGain = 1.02;  // speedup from which drafting pays: costs are known no better than that

  explicit DraftController(int32_t widest);

  // A step that could verify drafts. `by_width[w - 1]`: what is expected of it with blocks of w drafts; the last is the
  // width that was drafted.
  void observe(std::span<const StepValue> by_width);
  // The width of the blocks that the next step drafts, 0: none. Asked once for each step in which a request could.
  int32_t next_width();
  // The width when it is no trial's turn.
  int32_t width() const { return width_; }

 private:
  // The latest values of a width, and the steps they are from.
  struct History {
    StepValue values[kPatience];
    int64_t steps[kPatience] = {};
    int64_t count = 0;
    void add(const StepValue& value, int64_t step);
    double speedup(int64_t step) const;  // as it looks in `step`; 0: nothing is known
  };
  // Begins anew with the widest blocks.
  void start();
  // The best of so many widths, the narrowest first; none if none pays.
  void choose(size_t widths);

  int32_t widest_, width_;
  std::vector<History> histories_;  // by width - 1
  int64_t observed_ = 0;            // steps since it began
  int64_t since_trial_ = 0;         // steps
  double credit_ = kCredit;         // plain steps
  double trial_loss_ = 0;           // of the latest trial, in plain steps
};

}  // namespace folio
