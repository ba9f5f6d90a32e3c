#include "engine/logit_lists.h"

#include <limits>

namespace folio {

LogitLists::LogitLists(const Request& request)
    : request_(request),
      penalises_(request.presence_penalty != 0 || request.frequency_penalty != 0),
      repeats_(request.repetition_penalty != 1) {
  if (!repeats_) return;
  for (const int32_t id : request.prompt) see(id);
}

void LogitLists::see(int32_t id) {
  if (id < 0) return;
  const auto word = static_cast<size_t>(id / 64);
  if (word >= seen_.size()) seen_.resize(word + 1);
  seen_[word] |= uint64_t{1} << (id % 64);
}

void LogitLists::take(int32_t id) {
  if (repeats_) see(id);
  if (!penalises_) return;
  const auto [entry, fresh] = place_of_.try_emplace(id, penalties_.size());
  if (fresh) {
    penalties_.push_back({.id = id, .delta = 0});
    counts_.push_back(0);
  }
  const auto count = static_cast<float>(++counts_[entry->second]);
  penalties_[entry->second].delta = -(request_.frequency_penalty * count + request_.presence_penalty);
}

int64_t LogitLists::deltas(int64_t index, int32_t drafts) const {
  int64_t total = 0;
  for (int32_t i = 0; i <= drafts; ++i) {
    const int64_t bans = bans_ends(index + i) ? 1 + std::ssize(request_.stop_ids) : 0;
    const int64_t penalties = std::ssize(penalties_) + (penalises_ ? i : 0);
    total += std::ssize(request_.logit_bias) + bans + penalties;
  }
  return total;
}

void LogitLists::add_to(StepBuilder& builder, int64_t index, int32_t eos, TokenPolicy* policy) const {
  for (const LogitDelta& bias : request_.logit_bias) builder.add_bias(bias);
  if (bans_ends(index)) {
    constexpr float kBan = -std::numeric_limits<float>::infinity();
    builder.add_bias({.id = eos, .delta = kBan});
    for (const int32_t id : request_.stop_ids) {
      if (id >= 0 && id < builder.limits().vocab) builder.add_bias({.id = id, .delta = kBan});
    }
  }
  for (const LogitDelta& penalty : penalties_) builder.add_penalty(penalty);
  if (repeats_) builder.add_repetition_penalty(request_.repetition_penalty, seen_);
  if (request_.logprobs > 0) builder.report_top(request_.logprobs);
  if (policy != nullptr && !policy->mask(builder.add_mask())) builder.drop_mask();
}

}  // namespace folio
