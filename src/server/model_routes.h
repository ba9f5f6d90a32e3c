// Models, tokenizer, version: what says who is there (protocol spec 5.2, 5.10).
#pragma once

#include <string>

#include "server/routes.h"

namespace folio {

HttpReply list_models(const ServedModel& model, int64_t created);
// GET /v1/models/{id}. Throws ApiError(404).
HttpReply show_model(const ServedModel& model, std::string_view id, int64_t created);
HttpReply tokenizer_info(const ServedModel& model);

HttpReply tokenize(const Json& body, const ApiContext& context);
HttpReply detokenize(const Json& body, const ApiContext& context);

}  // namespace folio
