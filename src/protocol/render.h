// Messages to prompt: the chat encoding of DeepSeek-V4.1 (protocol spec 2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/messages.h"
#include "protocol/thinking.h"
#include "tokenizer/tokenizer.h"

namespace folio {

// How a prompt ends (protocol spec 2.11).
enum class PromptEnd : uint8_t {
  kGenerate,   // with the header of the answer that is wanted, or inside a last assistant message that is open
  kNoHeader,   // as the conversation ends: no header
  kContinue,   // inside the last message, which must be the assistant's
  kReference,  // as the reference writes it: a header after a user turn, none after a finished answer
};

struct RenderOptions {
  Thinking thinking = {};
  PromptEnd end = PromptEnd::kGenerate;
};

// Where the model's text begins.
enum class AnswerStart : uint8_t { kReasoning, kContent };

struct Prompt {
  std::string text;
  std::vector<ByteRange> untrusted;  // of `text`: what clients wrote; ascending, disjoint
  std::vector<std::string> images;   // in the order of their placeholders
  AnswerStart answer = AnswerStart::kContent;

  // Ids of the text. Clients' text never becomes an added token, unless `special_in_user_text`, which is what the
  // reference does.
  std::vector<int32_t> tokens(const Tokenizer& tokenizer, bool special_in_user_text = false) const;
};

// Throws FieldError when there is no message, a task is unknown, or kContinue finds no assistant message at the end.
Prompt render(const std::vector<Message>& messages, const RenderOptions& options = {});

// The prompt of a completion with a suffix (protocol spec 2.13): what stands between the two is asked for.
std::string fill_in_the_middle(const std::string& prefix, const std::string& suffix);

}  // namespace folio
