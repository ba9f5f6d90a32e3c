// Fills the host part of a Step: spans, rows, page tables and head rows, in staging at fixed addresses and strides
// (docs/architecture.md, "The step law").
#pragma once

#include <span>

#include "engine/request.h"
#include "model/step.h"
#include "tensor/buffer.h"

namespace folio {

struct StepLimits {
  int32_t max_rows = 0;
  int32_t max_head_rows = 0;
  int32_t max_requests = 0;
  int32_t max_pages = 0;  // of one request
  int64_t vocab = 0;
  int32_t draft_width = 0;  // tokens that a request drafts; 0 = none
};

class StepBuilder {
 public:
  StepBuilder(Device& device, const StepLimits& limits);

  // Starts over with an empty step.
  void clear();
  // Starts the span of a request: its slot, restart, replay bounds and drafts are taken from `span`; the rows added
  // next are its rows. `pages` must cover every position of the span.
  void add_request(const RequestSpan& span, std::span<const int32_t> pages);
  // `decoder`: the row's position is at or after the span's decoder_start.
  void add_row(RowInput input, bool image = false, bool decoder = true);
  // Sends the row added last through the head, without sampling. More than max_head_rows is a bug.
  void add_head_row();
  // The same, sampled with `params`; `commits`: the sample becomes the slot's last token, or, in a span with drafts,
  // may become it: those rows follow each other. Either all head rows of a step sample or none does.
  void add_sampled_row(const SamplingParams& params, bool commits = true);

  // The drafts of a block in this step, before the first request drafts; else StepLimits::draft_width, the most.
  void set_draft_width(int32_t width);
  // The request added last drafts when the step has been committed: greedily, or drawing with `sampling` (ops/draft.h).
  void add_draft(const SamplingParams& sampling = {.temperature = 0});

  // Rules of the sampled row that was added last (ops/sample.h): biases before penalties, at most delta_room() of them
  // in a step; one mask and one repetition penalty for each request of a step and for each of its drafts.
  void add_bias(LogitDelta bias);
  void add_penalty(LogitDelta penalty);
  void add_repetition_penalty(float penalty, std::span<const uint64_t> seen);
  void report_top(int32_t count);
  // The row checks `draft` by ratio acceptance; `distribution` is what it was drawn from.
  void add_ratio(int32_t draft, std::span<const DraftCandidate> distribution);
  // The row's mask, all bits set, for the caller to clear; drop_mask() takes it back.
  std::span<uint64_t> add_mask();
  void drop_mask();

  // The step built so far. Its arrays stay as they are until clear().
  Step step() const;
  const StepLimits& limits() const { return limits_; }
  // Biases and penalties of a step. One request, which has at most a bias and a penalty for each id and kMaxLogitBias
  // and kMaxStopIds biases beside, always fits.
  int64_t delta_room() const;

 private:
  int64_t bitset_words() const { return (limits_.vocab + 63) / 64; }
  int64_t max_drafts() const { return int64_t{limits_.max_requests} * limits_.draft_width; }
  int64_t max_bitsets() const { return 2 * int64_t{limits_.max_requests} * (1 + limits_.draft_width); }
  // The rules of the row added last.
  LogitRules& rules();
  uint64_t* take_bitset();
  void add_delta(LogitDelta delta);

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
  LogitRules* rules_;
  LogitDelta* deltas_;
  uint64_t* bitsets_;
  DraftCandidate* candidates_;
  RequestSpan* draft_spans_;
  int32_t* draft_request_;
  SamplingParams* draft_sampling_;
  StepInputs inputs_;
  DraftInputs draft_;
  int32_t sampled_rows_ = 0;
  bool has_rules_ = false;
  int64_t num_deltas_ = 0;
  int32_t num_bitsets_ = 0;
  int32_t num_candidates_ = 0;
  bool draws_drafts_ = false;
};

}  // namespace folio
