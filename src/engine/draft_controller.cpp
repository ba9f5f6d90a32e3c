#include "engine/draft_controller.h"

#include <algorithm>

#include "base/error.h"

namespace folio {

void DraftController::History::add(const StepValue& value, int64_t step) {
  values[count % kPatience] = value;
  steps[count % kPatience] = step;
  ++count;
}

double DraftController::History::speedup(int64_t step) const {
  StepValue sum{.tokens = 0, .seconds = 0};
  for (int64_t i = 0; i < std::min<int64_t>(count, kPatience); ++i) {
    if (steps[i] + kMemory <= step) continue;
    sum.tokens += values[i].tokens;
    sum.seconds += values[i].seconds;
  }
  return sum.seconds > 0 ? sum.speedup() : 0;
}

DraftController::DraftController(int32_t widest)
    : widest_(widest), width_(widest), histories_(static_cast<size_t>(widest)) {}

void DraftController::start() {
  width_ = widest_;
  observed_ = 0;
  histories_.assign(histories_.size(), History());
}

void DraftController::observe(std::span<const StepValue> by_width) {
  FOLIO_CHECK(!by_width.empty() && by_width.size() <= histories_.size(), by_width.size());
  const double gain = by_width.back().tokens - by_width.back().seconds;
  credit_ = std::min(kCredit, credit_ + gain);
  if (by_width.size() == histories_.size()) trial_loss_ = std::clamp(-gain, 0.0, kCredit);
  if (width_ == 0) {
    const double best = std::ranges::max(by_width, {}, &StepValue::speedup).speedup();
    if (best < kLeastGain) return;
    start();
  }
  ++observed_;
  for (size_t i = 0; i < by_width.size(); ++i) histories_[i].add(by_width[i], observed_);
  if (gain < 0 && credit_ < 0) {
    choose(by_width.size() - 1);  // a narrower one
  } else if (observed_ >= kPatience) {
    choose(histories_.size());
  }
}

void DraftController::choose(size_t widths) {
  double best = kLeastGain;
  width_ = 0;
  for (size_t i = 0; i < widths; ++i) {
    const double speedup = histories_[i].speedup(observed_);
    if (speedup < best) continue;
    best = speedup;
    width_ = static_cast<int32_t>(i) + 1;
  }
}

int32_t DraftController::next_width() {
  credit_ = std::min(kCredit, credit_ + kRefill);
  if (width_ == widest_) since_trial_ = 0;
  if (width_ == widest_ || ++since_trial_ < kTrialInterval || credit_ < trial_loss_) return width_;
  since_trial_ = 0;
  return widest_;
}

}  // namespace folio
