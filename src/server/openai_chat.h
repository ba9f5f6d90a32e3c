// /v1/chat/completions (protocol spec 5.3 to 5.6).
#pragma once

#include "server/chat_request.h"

namespace folio {

// The parts that the tokenizer endpoint's chat form has, too: messages, tools, thinking, how the prompt ends.
ChatRequest read_chat_prompt(const Json& body, const ServedModel& model);
Generation read_openai_chat(const Json& body, const ApiContext& context);
// POST /v1/chat/completions/render: the prompt and its ids, without generating.
HttpReply render_openai_chat(const Json& body, const ApiContext& context);

}  // namespace folio
