#include "server/usage_json.h"

#include <nlohmann/json.hpp>

namespace folio {

ReplyJson openai_usage(const TotalUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details",
           {{"cached_tokens", usage.cached_tokens}, {"approximate_cached_tokens", usage.approximate_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"prompt_cache_hit_tokens", usage.cached_tokens},
          {"prompt_cache_miss_tokens", usage.prompt_tokens - usage.cached_tokens}};
}

ReplyJson responses_usage(const TotalUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details",
           {{"cached_tokens", usage.cached_tokens}, {"approximate_cached_tokens", usage.approximate_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

ReplyJson anthropic_usage(const TotalUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

}  // namespace folio
