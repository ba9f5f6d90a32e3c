// Bodies of every route: whatever they say, a request for the engine or an error, and the same again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "server/fields.h"
#include "server/test_util.h"

namespace {

// The status of a body at a route, 200 when it is taken.
int status_of(folio::TestModel& model, const folio::Route& route, std::string_view text) {
  try {
    const folio::Json body = folio::parse_body(text);
    if (route.handle != nullptr) return route.handle(body, model.context()).status;
    const folio::Generation generation = route.generate(body, model.context());
    for (const auto& request : generation.requests) {
      FOLIO_CHECK(!request->prompt.empty() && request->max_tokens >= 1);
      FOLIO_CHECK(std::ssize(request->prompt) + request->max_tokens <= model.model().max_model_len);
    }
    return 200;
  } catch (const folio::ApiError& error) {
    FOLIO_CHECK(error.status() < 500 || error.status() == 501, error.what());
    return error.status();
  } catch (const folio::Error& error) {
    FOLIO_CHECK(error.code() != folio::ErrorCode::kInternal, error.what());
    return 400;
  }
}

}  // namespace

// The first byte picks the route.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static folio::TestModel model;
  if (size == 0) return 0;
  const auto routes = folio::body_routes();
  const folio::Route& route = routes[data[0] % routes.size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int status = status_of(model, route, text);
  FOLIO_CHECK(status_of(model, route, text) == status);
  return 0;
}
