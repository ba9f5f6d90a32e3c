#include "engine/hidden_rows.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace folio {
namespace {

bool asks_for(const ScheduledSpan& span, const std::string& tensor) {
  const std::vector<std::string>& names = span.state->request->hidden_rows;
  return std::find(names.begin(), names.end(), tensor) != names.end();
}

}  // namespace

void check_hidden_tensor(const std::string& tensor, const Config& config) {
  if (tensor == "hidden") return;
  const std::string prefix = "tap.";
  int layer = -1;
  const char* end = tensor.data() + tensor.size();
  const bool named = tensor.starts_with(prefix);
  const auto parsed = std::from_chars(tensor.data() + (named ? prefix.size() : tensor.size()), end, layer);
  if (!named || parsed.ec != std::errc() || parsed.ptr != end || layer < 0 || layer >= config.num_hidden_layers) {
    fail(ErrorCode::kInvalidArgument, "hidden rows '", tensor, "': there are hidden, and tap.0 to tap.",
         config.num_hidden_layers - 1);
  }
  if (config.engram_index(layer) >= 0) {
    fail(ErrorCode::kInvalidArgument, "hidden rows '", tensor, "': layer ", layer,
         " begins with an Engram injection, so that what enters it is not what left the layer before: choose another");
  }
}

bool HiddenRows::wanted() const {
  return std::any_of(step_.spans.begin(), step_.spans.end(),
                     [](const ScheduledSpan& span) { return !span.state->request->hidden_rows.empty(); });
}

bool HiddenRows::wants(const std::string& tensor) const {
  return std::any_of(step_.spans.begin(), step_.spans.end(),
                     [&](const ScheduledSpan& span) { return asks_for(span, tensor); });
}

void HiddenRows::put(const std::string& tensor, DType dtype, const Shape& shape, const void* data) {
  FOLIO_CHECK(dtype == DType::kBF16 && shape.rank() == 2, tensor);
  const int64_t width = shape[1];
  const bool all_rows = shape[0] == step_.rows;
  int64_t row = 0;
  for (const ScheduledSpan& span : step_.spans) {
    const RequestState& state = *span.state;
    const int64_t skipped = all_rows ? 0 : std::clamp<int64_t>(state.decoder_start - span.begin, 0, span.rows);
    const int64_t rows = span.rows - skipped;
    const auto* first = static_cast<const bf16*>(data) + row * width;
    row += rows;
    if (!asks_for(span, tensor)) continue;
    FOLIO_CHECK(skipped == 0, "a request for hidden rows runs every layer for every row");
    const int64_t of_prompt = std::clamp<int64_t>(state.prompt_length() - span.begin, 0, rows);
    if (of_prompt == 0) continue;
    state.request->sink->on_hidden_rows(tensor, span.begin, {first, static_cast<size_t>(of_prompt * width)});
  }
  FOLIO_CHECK(row == shape[0], tensor, " has ", shape[0], " rows");
}

}  // namespace folio
