// Conversations in files: what `folio chat` goes on from and saves.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "protocol/messages.h"

namespace folio {

constexpr size_t kMaxMessagesBytes = size_t{1} << 28;  // of a file of messages

// A JSON list of messages, or an object with "messages" and perhaps "tools", which become tools of the first system
// message, as in a request. Throws Error or FieldError, naming the file.
std::vector<Message> load_conversation(const std::string& path);

// Writes what load_conversation() reads, text alone of contents. Throws Error(kInvalidArgument) when the file is there
// already or cannot be written.
void save_conversation(const std::string& path, const std::vector<Message>& messages);

// The tools of all messages.
std::vector<Tool> conversation_tools(const std::vector<Message>& messages);

// Calls of the last assistant's turn to which no result has been given yet, in their order.
std::vector<ToolCall> open_calls(const std::vector<Message>& messages);

}  // namespace folio
