// Log-probabilities of tokens, kept from what a sink is told, and as the commands print them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace folio {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TopLogprob> top;

  static TokenLogprob kept(const TokenOutput& token) {
    return {.id = token.id, .logprob = token.logprob, .top = {token.top.begin(), token.top.end()}};
  }
};

// [{"id", "logprob", "top": [{"id", "logprob"}]}] of the tokens, at most `count` most likely ids of each.
inline nlohmann::ordered_json logprobs_json(std::span<const TokenLogprob> logprobs, int32_t count) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  for (const TokenLogprob& token : logprobs) {
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    for (const TopLogprob& t : std::span(token.top).first(std::min<size_t>(token.top.size(), count))) {
      top.push_back({{"id", t.id}, {"logprob", t.logprob}});
    }
    tokens.push_back({{"id", token.id}, {"logprob", token.logprob}, {"top", std::move(top)}});
  }
  return tokens;
}

}  // namespace folio
