// Bytes to a request, by the parser of the connections; for the fuzzer and tests.
#pragma once

#include <string_view>

#include "server/http_server.h"

namespace folio {

// The first request in `bytes`, in parts of `part` bytes, as a connection would read it. Its status: 200 with `request`
// filled, 0 when the bytes end before it does, else the refusal.
int parse_http(std::string_view bytes, size_t part, const HttpLimits& limits, HttpRequest& request);

}  // namespace folio
