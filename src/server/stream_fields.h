// Fields about how an answer is sent, and which ids it may have.
#pragma once

#include <memory>
#include <vector>

#include "server/backend.h"
#include "server/fields.h"

namespace folio {

struct StreamFields {
  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // and the usage so far in every chunk
};
// "stream" and "stream_options". Throws ApiError(400), also for options without a stream.
StreamFields read_stream(const Fields& fields);

// "allowed_token_ids" as bits, null when there are none. Throws ApiError(400).
std::shared_ptr<const std::vector<uint64_t>> read_allowed_ids(const Fields& fields, const ServedModel& model);

}  // namespace folio
