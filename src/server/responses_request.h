// /v1/responses: what a request means (protocol spec 5.9).
#pragma once

#include "server/chat_request.h"

namespace folio {

Generation read_responses(const Json& body, const ApiContext& context);

}  // namespace folio
