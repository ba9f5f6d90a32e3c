#include "protocol/chat_policy.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace folio {
namespace {

constexpr int64_t kWordBits = 64;

void clear(std::span<uint64_t> bits, int32_t id) {
  bits[static_cast<size_t>(id / kWordBits)] &= ~(uint64_t{1} << (id % kWordBits));
}

}  // namespace

ChatPolicy::ChatPolicy(const Tokenizer& tokenizer, ChatPolicyOptions options)
    : end_think_(tokenizer.find_added("</think>")),
      thinking_budget_(options.thinking_budget),
      grammar_(std::move(options.grammar)),
      reader_(tokenizer, std::move(options.parser)) {
  // Reasoning ends with </think> before a grammar, neither with the answer nor with a call.
  for (const std::string_view text : {"<｜end▁of▁sentence｜>", "｜DSML｜"}) {
    if (const auto id = tokenizer.find_added(text); id && grammar_ != nullptr) not_in_reasoning_.push_back(*id);
  }
  if (!reader_.parser().reasoning()) armed_at_ = 0;
  kept_.push_back({0, reader_});
}

bool ChatPolicy::mask(std::span<uint64_t> bits) {
  if (armed_at_ >= 0) return grammar_ != nullptr && grammar_->mask(bits);
  if (thinking_budget_ >= 0 && end_think_ && reader_.reasoning_tokens() >= thinking_budget_) {
    std::fill(bits.begin(), bits.end(), 0);
    bits[static_cast<size_t>(*end_think_ / kWordBits)] = uint64_t{1} << (*end_think_ % kWordBits);
    return true;
  }
  for (const int32_t id : not_in_reasoning_) clear(bits, id);
  return !not_in_reasoning_.empty();
}

PolicyVerdict ChatPolicy::accept(int32_t id) {
  const bool armed = armed_at_ >= 0;
  read(id);
  PolicyVerdict verdict = reader_.parser().done() ? PolicyVerdict::kStop : PolicyVerdict::kContinue;
  if (armed && grammar_ != nullptr && grammar_->accept(id) == PolicyVerdict::kStop) verdict = PolicyVerdict::kStop;
  return verdict;
}

void ChatPolicy::read(int32_t id) {
  std::vector<Delta> unused;
  reader_.push(id, unused);
  ids_.push_back(id);
  if (armed_at_ < 0 && !reader_.parser().reasoning()) armed_at_ = std::ssize(ids_);
  if (std::ssize(ids_) == kept_.back().count + kKeepEvery) {
    kept_.push_back({std::ssize(ids_), reader_});
    if (kept_.size() > 3) kept_.erase(kept_.begin() + 1);
  }
}

void ChatPolicy::rollback(int32_t count) {
  FOLIO_CHECK(count >= 0 && count <= std::ssize(ids_));
  const int64_t left = std::ssize(ids_) - count;
  if (grammar_ != nullptr && armed_at_ >= 0 && armed_at_ < std::ssize(ids_)) {
    grammar_->rollback(static_cast<int32_t>(std::ssize(ids_) - std::max(left, armed_at_)));
  }
  while (kept_.back().count > left) kept_.pop_back();
  if (armed_at_ > left) armed_at_ = -1;
  const std::vector<int32_t> again(ids_.begin() + kept_.back().count, ids_.begin() + left);
  ids_.resize(static_cast<size_t>(kept_.back().count));
  reader_ = kept_.back().reader;
  for (const int32_t id : again) read(id);
}

}  // namespace folio
