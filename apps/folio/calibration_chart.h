// The two charts of folio calibrate.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/calibration.h"
#include "engine/calibration_run.h"

namespace folio {

// Observed over predicted survival of each drafted position, before and after the fit, as one panel each.
std::string reliability_chart(std::span<const Reliability> before, std::span<const Reliability> after,
                              const std::string& title);

// Steps a second over the rows of a step: what was measured, and the table that was made of it.
std::string throughput_chart(const MeasuredSteps& measured, std::span<const double> steps_per_second,
                             const std::string& title);

}  // namespace folio
