#include "tokenizer/stop_policy.h"

#include "base/error.h"

namespace folio {

StopStringPolicy::StopStringPolicy(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(&tokenizer), stops_(std::move(stops)), text_(tokenizer, stops_) {}

bool StopStringPolicy::mask(std::span<uint64_t>) { return false; }

PolicyVerdict StopStringPolicy::accept(int32_t id) {
  ids_.push_back(id);
  text_.push(id);
  return text_.stopped() ? PolicyVerdict::kStop : PolicyVerdict::kContinue;
}

void StopStringPolicy::rollback(int32_t count) {
  FOLIO_CHECK(count >= 0 && count <= std::ssize(ids_));
  ids_.resize(ids_.size() - static_cast<size_t>(count));
  text_ = AnswerText(*tokenizer_, stops_);
  for (const int32_t id : ids_) text_.push(id);
}

std::vector<std::shared_ptr<TokenPolicy>> stop_policies(const Tokenizer& tokenizer,
                                                        const std::vector<std::string>& stops, int32_t choices) {
  std::vector<std::shared_ptr<TokenPolicy>> policies;
  if (stops.empty()) return policies;
  for (int32_t i = 0; i < choices; ++i) policies.push_back(std::make_shared<StopStringPolicy>(tokenizer, stops));
  return policies;
}

}  // namespace folio
