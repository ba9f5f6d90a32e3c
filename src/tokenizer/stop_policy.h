// Stop strings as a policy of the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/answer_text.h"
#include "tokenizer/token_policy.h"

namespace folio {

// Ends a request with the token that completes a stop string in its visible text. `tokenizer` must outlive it.
class StopStringPolicy final : public TokenPolicy {
 public:
  // Throws Error(kInvalidArgument) when a stop string is empty.
  StopStringPolicy(const Tokenizer& tokenizer, std::vector<std::string> stops);

  bool mask(std::span<uint64_t> bits) override;
  bool masks() const override { return false; }
  PolicyVerdict accept(int32_t id) override;
  // Reads the tokens before anew, so it costs as much as the answer is long.
  void rollback(int32_t count) override;

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::string> stops_;
  AnswerText text_;
  std::vector<int32_t> ids_;  // accepted
};

// One policy for each of `choices` answers; none without stop strings.
std::vector<std::shared_ptr<TokenPolicy>> stop_policies(const Tokenizer& tokenizer,
                                                        const std::vector<std::string>& stops, int32_t choices);

}  // namespace folio
