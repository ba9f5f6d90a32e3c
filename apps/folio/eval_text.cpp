// folio eval: NLL and bits per byte of held-out text, under the formats that the flags name and under all.
#include <cstdio>
#include <limits>
#include <numbers>

#include "eval.h"

namespace folio {
namespace {

constexpr int64_t kRow = 1024;          // tokens that one row predicts, as in training
constexpr int64_t kMostCacheRows = 16;  // of a domain for one cache format

struct TextCost {
  int64_t tokens = 0, bytes = 0;  // predicted tokens, and their bytes
  double nll = 0;                 // of all of them, nats
  double per_token() const { return nll / static_cast<double>(tokens); }
  double bits_per_byte() const { return nll / std::numbers::ln2 / static_cast<double>(bytes); }
};

// Rows of up to kRow + 1 tokens that overlap by one, so that each token but the first is predicted once.
TextCost text_cost(const EvalContext& context, const EvalDomain& domain, EvalEngine& engine,
                   int64_t most_rows = std::numeric_limits<int64_t>::max()) {
  const auto count = std::ssize(domain.tokens);
  const int64_t rows = std::min(most_rows, context.limited((count - 1 + kRow - 1) / kRow));
  std::vector<std::shared_ptr<Request>> requests;
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = domain.tokens.begin() + row * kRow;
    const auto end = domain.tokens.begin() + std::min(count, (row + 1) * kRow + 1);
    requests.push_back(greedy_request({begin, end}, 1));
    requests.back()->wants_prompt_rows = true;
  }
  TextCost cost;
  const std::vector<KeptAnswer> answers = engine.run(requests, "rows of held-out " + domain.name);
  for (size_t row = 0; row < answers.size(); ++row) {
    for (const TokenLogprob& token : answers[row].prompt_logprobs) cost.nll -= static_cast<double>(token.logprob);
    const std::span<const int32_t> predicted = std::span(requests[row]->prompt).subspan(1);
    cost.tokens += std::ssize(predicted);
    cost.bytes += text_bytes(context.files.tokenizer, predicted);
  }
  return cost;
}

EvalEngineOptions text_options() { return {.prompt_rows = true, .longest = kRow + 2}; }

}  // namespace

nlohmann::ordered_json eval_held_out(const EvalContext& context) {
  EvalEngine engine(context.files, context.runner, text_options());
  std::printf("held-out text         tokens     bytes   NLL per token   bits per byte\n");
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const EvalDomain& domain : context.suite.domains) {
    const TextCost cost = text_cost(context, domain, engine);
    std::printf("  %-17s %8lld  %8lld   %13.4f   %13.4f\n", domain.name.c_str(), static_cast<long long>(cost.tokens),
                static_cast<long long>(cost.bytes), cost.per_token(), cost.bits_per_byte());
    std::fflush(stdout);
    json.push_back({{"domain", domain.name},
                    {"tokens", cost.tokens},
                    {"bytes", cost.bytes},
                    {"nll_per_token", cost.per_token()},
                    {"bits_per_byte", cost.bits_per_byte()}});
  }
  return json;
}

nlohmann::ordered_json eval_caches(const EvalContext& context) {
  std::printf("cache formats         bytes a token   NLL per token:");
  for (const EvalDomain& domain : context.suite.domains) std::printf(" %9s", domain.name.c_str());
  std::printf("\n");
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  // Both formats of kv with the published index plane, and the other index plane with the default.
  for (const CacheFormat& format :
       {CacheFormat{.packed = true}, {.packed = false}, {.packed = true, .fp8_index = true}}) {
    RunnerOptions runner = context.runner;
    runner.cache_format = format;
    EvalEngine engine(context.files, runner, text_options());
    const double bytes = engine.runner().geometry().bytes_per_token();
    const char *kv = format.packed ? "fp4" : "bf16", *index = format.fp8_index ? "fp8" : "fp4";
    std::printf("  kv %-4s index %-3s  %15.1f                 ", kv, index, bytes);
    nlohmann::ordered_json costs = nlohmann::ordered_json::array();
    for (const EvalDomain& domain : context.suite.domains) {
      const TextCost cost = text_cost(context, domain, engine, kMostCacheRows);
      std::printf(" %9.4f", cost.per_token());
      std::fflush(stdout);
      costs.push_back({{"domain", domain.name}, {"tokens", cost.tokens}, {"nll_per_token", cost.per_token()}});
    }
    std::printf("\n");
    json.push_back({{"kv_cache_dtype", kv},
                    {"index_cache_dtype", index},
                    {"bytes_per_token", bytes},
                    {"domains", std::move(costs)}});
  }
  return json;
}

}  // namespace folio
