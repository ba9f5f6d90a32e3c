// /v1/messages: what a request means (protocol spec 5.8).
#pragma once

#include "server/chat_request.h"

namespace folio {

Generation read_anthropic(const Json& body, const ApiContext& context);
// POST /v1/messages/count_tokens.
HttpReply count_anthropic_tokens(const Json& body, const ApiContext& context);

}  // namespace folio
