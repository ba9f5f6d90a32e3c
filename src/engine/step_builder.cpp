#include "engine/step_builder.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/arena.h"

namespace folio {

StepBuilder::StepBuilder(Device& device, const StepLimits& limits) : limits_(limits) {
  const auto lay_out = [&](Arena arena) {
    row_inputs_ = arena.take<RowInput>(limits.max_rows);
    row_image_ = arena.take<uint8_t>(limits.max_rows);
    row_request_ = arena.take<int32_t>(limits.max_rows);
    spans_ = arena.take<RequestSpan>(limits.max_requests);
    head_rows_ = arena.take<int32_t>(limits.max_head_rows);
    decoder_rows_ = arena.take<int32_t>(limits.max_rows);
    decoder_request_ = arena.take<int32_t>(limits.max_rows);
    decoder_spans_ = arena.take<RequestSpan>(limits.max_requests);
    head_in_decoder_ = arena.take<int32_t>(limits.max_head_rows);
    page_tables_ = arena.take<int32_t>(int64_t{limits.max_requests} * limits.max_pages);
    sampling_ = arena.take<SamplingParams>(limits.max_head_rows);
    rules_ = arena.take<LogitRules>(limits.max_head_rows);
    deltas_ = arena.take<LogitDelta>(delta_room());
    bitsets_ = arena.take<uint64_t>(max_bitsets() * bitset_words());
    draft_spans_ = arena.take<RequestSpan>(limits.draft_width > 0 ? limits.max_requests : 0);
    draft_request_ = arena.take<int32_t>(max_drafts());
    candidates_ = arena.take<DraftCandidate>(max_drafts() * kDraftCandidates);
    draft_sampling_ = arena.take<SamplingParams>(limits.draft_width > 0 ? limits.max_requests : 0);
    return arena.used();
  };
  memory_ = Buffer(device, lay_out(Arena()));
  lay_out(Arena(memory_));
  inputs_ = {.row_inputs = row_inputs_,
             .row_image = row_image_,
             .row_request = row_request_,
             .spans = spans_,
             .head_rows = head_rows_,
             .decoder_rows = decoder_rows_,
             .decoder_request = decoder_request_,
             .decoder_spans = decoder_spans_,
             .head_in_decoder = head_in_decoder_,
             .page_tables = page_tables_,
             .page_table_stride = limits.max_pages};
  draft_ = {.width = limits.draft_width, .spans = draft_spans_, .row_request = draft_request_};
}

void StepBuilder::clear() {
  inputs_.num_rows = 0;
  inputs_.num_requests = 0;
  inputs_.num_head_rows = 0;
  inputs_.num_decoder_rows = 0;
  draft_.num_requests = 0;
  draft_.width = limits_.draft_width;
  sampled_rows_ = 0;
  has_rules_ = false;
  num_deltas_ = 0;
  num_bitsets_ = 0;
  num_candidates_ = 0;
  draws_drafts_ = false;
}

void StepBuilder::add_request(const RequestSpan& span, std::span<const int32_t> pages) {
  const int32_t index = inputs_.num_requests++;
  FOLIO_CHECK(index < limits_.max_requests && std::ssize(pages) <= limits_.max_pages);
  spans_[index] = span;
  spans_[index].first_row = inputs_.num_rows;
  spans_[index].num_rows = 0;
  spans_[index].sampled_row = -1;
  decoder_spans_[index] = spans_[index];
  decoder_spans_[index].first_row = inputs_.num_decoder_rows;
  std::copy(pages.begin(), pages.end(), page_tables_ + int64_t{index} * limits_.max_pages);
}

void StepBuilder::add_row(RowInput input, bool image, bool decoder) {
  const int32_t row = inputs_.num_rows++, request = inputs_.num_requests - 1;
  FOLIO_CHECK(row < limits_.max_rows && request >= 0);
  row_inputs_[row] = input;
  row_image_[row] = image;
  row_request_[row] = request;
  ++spans_[request].num_rows;
  if (!decoder) return;
  decoder_rows_[inputs_.num_decoder_rows] = row;
  decoder_request_[inputs_.num_decoder_rows++] = request;
  ++decoder_spans_[request].num_rows;
}

void StepBuilder::add_head_row() {
  const int32_t index = inputs_.num_head_rows++;
  FOLIO_CHECK(index < limits_.max_head_rows && inputs_.num_rows > 0);
  head_rows_[index] = inputs_.num_rows - 1;
  head_in_decoder_[index] = inputs_.num_decoder_rows - 1;
  FOLIO_CHECK(decoder_rows_[head_in_decoder_[index]] == head_rows_[index], "a head row that the decoder does not run");
}

void StepBuilder::add_sampled_row(const SamplingParams& params, bool commits) {
  add_head_row();
  const int32_t index = inputs_.num_head_rows - 1;
  sampling_[index] = params;
  rules_[index] = {.first_delta = static_cast<int32_t>(num_deltas_)};
  RequestSpan& span = spans_[inputs_.num_requests - 1];
  if (commits && span.sampled_row < 0) span.sampled_row = index;
  ++sampled_rows_;
}

void StepBuilder::set_draft_width(int32_t width) {
  FOLIO_CHECK(draft_.num_requests == 0 && width > 0 && width <= limits_.draft_width, width);
  draft_.width = width;
}

void StepBuilder::add_draft(const SamplingParams& sampling) {
  const int32_t index = draft_.num_requests++;
  FOLIO_CHECK(draft_.width > 0 && index < limits_.max_requests && inputs_.num_requests > 0);
  RequestSpan& span = draft_spans_[index];
  span = spans_[inputs_.num_requests - 1];
  span.first_row = index * draft_.width;
  span.num_rows = draft_.width;
  std::fill_n(draft_request_ + span.first_row, draft_.width, index);
  draft_sampling_[index] = sampling;
  draws_drafts_ = draws_drafts_ || sampling.temperature >= kGreedyTemperature;
}

int64_t StepBuilder::delta_room() const {
  constexpr int64_t kPerRequest = 1024;  // distinct tokens that requests with penalties have generated, on average
  return limits_.vocab + kMaxLogitBias + kMaxStopIds + 1 + kPerRequest * limits_.max_requests;
}

LogitRules& StepBuilder::rules() {
  FOLIO_CHECK(sampled_rows_ > 0);
  has_rules_ = true;
  return rules_[inputs_.num_head_rows - 1];
}

void StepBuilder::add_delta(LogitDelta delta) {
  FOLIO_CHECK(num_deltas_ < delta_room() && delta.id >= 0 && delta.id < limits_.vocab, delta.id);
  deltas_[num_deltas_++] = delta;
}

void StepBuilder::add_bias(LogitDelta bias) {
  FOLIO_CHECK(rules().num_penalties == 0, "a bias behind penalties");
  ++rules().num_biases;
  add_delta(bias);
}

void StepBuilder::add_penalty(LogitDelta penalty) {
  ++rules().num_penalties;
  add_delta(penalty);
}

uint64_t* StepBuilder::take_bitset() {
  FOLIO_CHECK(num_bitsets_ < max_bitsets());
  return bitsets_ + num_bitsets_++ * bitset_words();
}

void StepBuilder::add_repetition_penalty(float penalty, std::span<const uint64_t> seen) {
  FOLIO_CHECK(std::ssize(seen) <= bitset_words());
  rules().repetition_penalty = penalty;
  rules().seen = num_bitsets_;
  uint64_t* bits = take_bitset();
  std::fill(std::copy(seen.begin(), seen.end(), bits), bits + bitset_words(), 0);
}

void StepBuilder::report_top(int32_t count) {
  FOLIO_CHECK(count <= kMaxTopLogprobs);
  rules().top = count;
}

void StepBuilder::add_ratio(int32_t draft, std::span<const DraftCandidate> distribution) {
  const auto count = static_cast<int32_t>(distribution.size());
  FOLIO_CHECK(count > 0 && num_candidates_ + count <= max_drafts() * kDraftCandidates);
  rules().draft = draft;
  rules().first_candidate = num_candidates_;
  rules().num_candidates = count;
  std::copy(distribution.begin(), distribution.end(), candidates_ + num_candidates_);
  num_candidates_ += count;
}

std::span<uint64_t> StepBuilder::add_mask() {
  rules().mask = num_bitsets_;
  uint64_t* bits = take_bitset();
  std::fill(bits, bits + bitset_words(), ~uint64_t{0});
  return {bits, static_cast<size_t>(bitset_words())};
}

void StepBuilder::drop_mask() {
  FOLIO_CHECK(rules().mask == num_bitsets_ - 1);
  rules().mask = -1;
  --num_bitsets_;
}

Step StepBuilder::step() const {
  FOLIO_CHECK(sampled_rows_ == 0 || sampled_rows_ == inputs_.num_head_rows, "some head rows sample and some do not");
  return {.inputs = inputs_,
          .sampling = sampled_rows_ > 0 ? sampling_ : nullptr,
          .lists = {.rules = has_rules_ ? rules_ : nullptr,
                    .deltas = deltas_,
                    .bitsets = bitsets_,
                    .bitset_words = bitset_words(),
                    .candidates = candidates_},
          .draft = draft_,
          .draft_sampling = draws_drafts_ ? draft_sampling_ : nullptr};
}

}  // namespace folio
