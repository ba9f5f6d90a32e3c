// /v1/chat/completions (protocol spec 5.3 to 5.6).
#pragma once

#include "server/chat_request.h"

namespace folio {

// The parts that the tokenizer endpoint's chat form has, too: messages, tools, thinking, how the prompt ends.
ChatRequest read_chat_prompt(const Json& body, const ServedModel& model);
Generation read_openai_chat(const Json& body, const ApiContext& context);
// POST /v1/chat/completions/render: the prompt and its ids, without generating.
HttpReply render_openai_chat(const Json& body, const ApiContext& context);

// "response_format" in the form of chat completions, or flat as in responses: {"type": "json_schema", "schema": ...}.
void read_response_format(const Json& format, const std::string& field, ChatRequest& chat);

}  // namespace folio
