// Fills the host part of a Step: spans, rows, page tables and head rows, in staging at fixed addresses and strides
// (docs/architecture.md, "The step law").
#pragma once

#include <span>

#include "model/step.h"
#include "tensor/buffer.h"

namespace folio {

struct StepLimits {
  int32_t max_rows = 0;
  int32_t max_head_rows = 0;
  int32_t max_requests = 0;
  int32_t max_pages = 0;  // of one request
};

class StepBuilder {
 public:
  StepBuilder(Device& device, const StepLimits& limits);

  // Starts over with an empty step.
  void clear();
  // Starts the span of a request: its slot, restart and replay bounds are taken from `span`; the rows added next are
  // its rows. `pages` must cover every position of the span.
  void add_request(const RequestSpan& span, std::span<const int32_t> pages);
  // `decoder`: the row's position is at or after the span's decoder_start.
  void add_row(RowInput input, bool image = false, bool decoder = true);
  // Sends the row added last through the head, without sampling. More than max_head_rows is a bug.
  void add_head_row();
  // The same, sampled with `params`; `commits`: the sample becomes the slot's last token. Either all head rows of a
  // step sample or none does.
  void add_sampled_row(const SamplingParams& params, bool commits = true);

  // The step built so far. Its arrays stay as they are until clear().
  Step step() const;
  const StepLimits& limits() const { return limits_; }

 private:
  StepLimits limits_;
  Buffer memory_;
  RowInput* row_inputs_;
  uint8_t* row_image_;
  int32_t* row_request_;
  RequestSpan* spans_;
  int32_t* head_rows_;
  int32_t* decoder_rows_;
  int32_t* decoder_request_;
  RequestSpan* decoder_spans_;
  int32_t* head_in_decoder_;
  int32_t* page_tables_;
  SamplingParams* sampling_;
  StepInputs inputs_;
  int32_t sampled_rows_ = 0;
};

}  // namespace folio
