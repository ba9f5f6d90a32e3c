// Dynamic verification as the scheduler uses it (spec runtime 7.7): with a calibration profile, how wide the blocks are
// that requests draft and how many drafts of each a step verifies. Any choice gives the same tokens.
#pragma once

#include <memory>

#include "engine/calibration_profile.h"
#include "engine/draft_controller.h"
#include "engine/verify_schedule.h"

namespace folio {

class DynamicVerification {
 public:
  explicit DynamicVerification(std::shared_ptr<const CalibrationProfile> profile);

  // How many drafts of each request of a step are verified; called once for the step, which also speaks for or against
  // the width of its blocks. `confidences`: of those that could be, for every decoding request; one at least has some.
  // `drafted`: how wide the widest block is, with drafts for which there is no use any more.
  std::vector<int32_t> plan(std::span<const std::span<const float>> confidences, int32_t drafted);
  // A block has been through a step: `verified` of its drafts were verified, `accepted` accepted.
  void judge(std::span<const float> confidences, int32_t verified, int32_t accepted);
  // The width of the blocks that requests of a step draft, 0: none. Asked once for each step in which a request could.
  int32_t next_width() { return controller_.next_width(); }

 private:
  std::shared_ptr<const CalibrationProfile> profile_;
  AcceptanceModel acceptance_;
  DraftController controller_;
};

}  // namespace folio
