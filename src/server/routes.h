// Which path is answered by what.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/grammar.h"
#include "server/answer.h"
#include "server/backend.h"
#include "server/http_message.h"
#include "server/response_store.h"

namespace folio {

// What readers of requests may use, on any thread.
struct ApiContext {
  const ServedModel& model;
  GrammarCompiler& grammars;
  ResponseStore& responses;
  std::string request_id;  // that the client gave; "": none
};

// The id of a reply: the prefix, such as "cmpl-", with the client's id, or a random one.
std::string reply_id(std::string_view prefix, const ApiContext& context);

// Reads a request for tokens; throws ApiError or Error. On a worker.
using GenerationReader = Generation (*)(const Json& body, const ApiContext& context);
// Answers a request at once; throws ApiError or Error. On a worker.
using BodyHandler = HttpReply (*)(const Json& body, const ApiContext& context);

struct Route {
  std::string_view path;
  ApiStyle style = ApiStyle::kOpenAi;
  GenerationReader generate = nullptr;  // one of these two
  BodyHandler handle = nullptr;
};

// The routes of POST requests with a JSON body.
std::span<const Route> body_routes();
const Route* find_body_route(std::string_view path);

}  // namespace folio
