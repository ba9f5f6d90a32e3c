#include "server/usage_json.h"

#include <nlohmann/json.hpp>

namespace folio {

namespace {

ReplyJson output_details(const TotalUsage& usage) {
  ReplyJson details = {{"reasoning_tokens", usage.reasoning_tokens}};
  if (usage.drafted_tokens > 0) {
    details["accepted_prediction_tokens"] = usage.accepted_tokens;
    details["rejected_prediction_tokens"] = usage.drafted_tokens - usage.accepted_tokens;
  }
  return details;
}

ReplyJson announced(ReplyJson json, const TotalUsage& usage) {
  if (usage.forced_acceptance) json["forced_acceptance"] = true;
  return json;
}

}  // namespace

ReplyJson openai_usage(const TotalUsage& usage) {
  return announced({{"prompt_tokens", usage.prompt_tokens},
                    {"completion_tokens", usage.completion_tokens},
                    {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                    {"prompt_tokens_details",
                     {{"cached_tokens", usage.cached_tokens}, {"approximate_cached_tokens", usage.approximate_tokens}}},
                    {"completion_tokens_details", output_details(usage)},
                    {"prompt_cache_hit_tokens", usage.cached_tokens},
                    {"prompt_cache_miss_tokens", usage.prompt_tokens - usage.cached_tokens}},
                   usage);
}

ReplyJson responses_usage(const TotalUsage& usage) {
  return announced({{"input_tokens", usage.prompt_tokens},
                    {"input_tokens_details",
                     {{"cached_tokens", usage.cached_tokens}, {"approximate_cached_tokens", usage.approximate_tokens}}},
                    {"output_tokens", usage.completion_tokens},
                    {"output_tokens_details", output_details(usage)},
                    {"total_tokens", usage.prompt_tokens + usage.completion_tokens}},
                   usage);
}

ReplyJson anthropic_usage(const TotalUsage& usage) {
  return announced({{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                    {"cache_creation_input_tokens", 0},
                    {"cache_read_input_tokens", usage.cached_tokens},
                    {"output_tokens", usage.completion_tokens}},
                   usage);
}

}  // namespace folio
