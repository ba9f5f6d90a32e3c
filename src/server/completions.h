// /v1/completions: raw text in, raw text out (protocol spec 5.7).
#pragma once

#include "server/routes.h"

namespace folio {

// What a request's body asks for. Throws ApiError. On a worker.
Generation read_completion(const Json& body, const ApiContext& context);

}  // namespace folio
