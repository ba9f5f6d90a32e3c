#include "server/answer.h"

namespace folio {

void TotalUsage::add(const Usage& usage, bool first) {
  completion_tokens += usage.completion_tokens;
  if (!first) return;
  prompt_tokens += usage.prompt_tokens;
  cached_tokens += usage.cached_tokens;
  approximate_tokens += usage.encoder_replay ? usage.cached_tokens : 0;
}

}  // namespace folio
