// Hidden states of prompts on their way from the model to sinks: what a drafter trains on.
#pragma once

#include <string>

#include "engine/scheduler.h"
#include "model/trace.h"

namespace folio {

// Throws Error(kInvalidArgument), naming it, for a tensor that no model of this configuration has: "hidden", or "tap.L"
// of a layer without Engram, whose injection would stand between the layer before and the tap.
void check_hidden_tensor(const std::string& tensor, const Config& config);

// Takes the rows of one step from the model and hands each to the sink of its request. Keeps nothing.
class HiddenRows final : public TraceSink {
 public:
  explicit HiddenRows(const ScheduledStep& step) : step_(step) {}

  // Whether some request of the step asks for a row.
  bool wanted() const;
  bool wants(const std::string& tensor) const override;
  // `data` is bf16 [rows, hidden_size]; the rows are those of the step, or those that the decoder layers run.
  void put(const std::string& tensor, DType dtype, const Shape& shape, const void* data) override;

 private:
  const ScheduledStep& step_;
};

}  // namespace folio
