#include "server/stream_fields.h"

#include "base/error.h"
#include "server/api_error.h"
#include "server/token_policies.h"

namespace folio {

StreamFields read_stream(const Fields& fields) {
  StreamFields read;
  read.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return read;
  if (!read.stream) throw ApiError(400, "`stream_options` is only allowed with `stream`: true.", "stream_options");
  const Fields values(*options, "stream_options");
  read.continuous_usage = values.boolean("continuous_usage_stats").value_or(false);
  read.include_usage = values.boolean("include_usage").value_or(false);
  return read;
}

std::shared_ptr<const std::vector<uint64_t>> read_allowed_ids(const Fields& fields, const ServedModel& model) {
  const Json::Array* ids = fields.array("allowed_token_ids");
  if (ids == nullptr) return nullptr;
  const std::vector<int32_t> allowed = read_ids(*ids, "allowed_token_ids");
  for (const int32_t id : allowed) {
    if (id >= model.vocab_size)
      fields.refuse("allowed_token_ids", concat("token ids from 0 to ", model.vocab_size - 1));
  }
  if (allowed.empty()) fields.refuse("allowed_token_ids", "a list with at least one token id");
  return id_bits(allowed, model.vocab_size);
}

}  // namespace folio
