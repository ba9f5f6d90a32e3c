// Token counts of a reply in each API's words. Where drafts were verified the details of the output tokens say how many
// of them were accepted and rejected, in OpenAI's words; where acceptance is forced (engine/speculation.h) the usage of
// every API has `"forced_acceptance": true`: the text means nothing.
#pragma once

#include "server/answer.h"
#include "server/reply_json.h"

namespace folio {

// Chat completions and completions (protocol spec 5.5). `approximate_cached_tokens` is Folio's own: cached tokens
// behind which the answer is close to a cold run's, not equal.
ReplyJson openai_usage(const TotalUsage& usage);
// /v1/responses (5.9).
ReplyJson responses_usage(const TotalUsage& usage);
// /v1/messages (5.8), whose input_tokens leave out what was cached.
ReplyJson anthropic_usage(const TotalUsage& usage);

}  // namespace folio
