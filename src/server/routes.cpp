#include "server/routes.h"

#include <algorithm>
#include <array>

#include "server/anthropic_request.h"
#include "server/completions.h"
#include "server/model_routes.h"
#include "server/openai_chat.h"
#include "server/reply_json.h"
#include "server/responses_request.h"

namespace folio {
namespace {

constexpr auto kRoutes = std::to_array<Route>({
    {.path = "/v1/chat/completions", .generate = read_openai_chat},
    {.path = "/v1/completions", .generate = read_completion},
    {.path = "/v1/responses", .generate = read_responses},
    {.path = "/v1/messages", .style = ApiStyle::kAnthropic, .generate = read_anthropic},
    {.path = "/v1/messages/count_tokens", .style = ApiStyle::kAnthropic, .handle = count_anthropic_tokens},
    {.path = "/v1/chat/completions/render", .handle = render_openai_chat},
    {.path = "/tokenize", .handle = tokenize},
    {.path = "/detokenize", .handle = detokenize},
    // As DeepSeek's hosted API has them.
    {.path = "/chat/completions", .generate = read_openai_chat},
    {.path = "/completions", .generate = read_completion},
    {.path = "/beta/chat/completions", .generate = read_openai_chat},
    {.path = "/beta/completions", .generate = read_completion},
});

}  // namespace

std::span<const Route> body_routes() { return kRoutes; }

const Route* find_body_route(std::string_view path) {
  const auto route = std::find_if(kRoutes.begin(), kRoutes.end(), [&](const Route& r) { return r.path == path; });
  return route == kRoutes.end() ? nullptr : &*route;
}

std::string reply_id(std::string_view prefix, const ApiContext& context) {
  return context.request_id.empty() ? random_id(prefix) : std::string(prefix) + context.request_id;
}

}  // namespace folio
