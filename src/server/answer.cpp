#include "server/answer.h"

namespace folio {

void TotalUsage::add(const Usage& usage, bool first) {
  completion_tokens += usage.completion_tokens;
  drafted_tokens += usage.drafted_tokens;
  accepted_tokens += usage.accepted_tokens;
  forced_acceptance = forced_acceptance || usage.forced_acceptance;
  if (!first) return;
  prompt_tokens += usage.prompt_tokens;
  cached_tokens += usage.cached_tokens;
  approximate_tokens += usage.encoder_replay ? usage.cached_tokens : 0;
}

}  // namespace folio
