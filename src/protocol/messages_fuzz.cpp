// libFuzzer target: a chat request from outside, through JSON, messages, tools, thinking and rendering.
#include <cstdlib>

#include "base/error.h"
#include "protocol/field_error.h"
#include "protocol/render.h"

namespace {

using namespace folio;

void check(bool condition) {
  if (!condition) std::abort();
}

// Untrusted ranges are ascending, disjoint and inside the text.
void check_prompt(const Prompt& prompt) {
  size_t end = 0;
  for (const ByteRange& range : prompt.untrusted) {
    check(end <= range.begin && range.begin < range.end && range.end <= prompt.text.size());
    end = range.end;
  }
}

void render_request(const Json& request) {
  const Json* list = request.array() != nullptr ? &request : request.find("messages");
  std::vector<Message> messages = parse_messages(list != nullptr ? *list : Json());
  if (const Json* tools = request.find("tools")) attach_tools(messages, parse_tools(*tools));
  RenderOptions options{.thinking = requested_thinking(request)};
  for (const PromptEnd end :
       {PromptEnd::kGenerate, PromptEnd::kNoHeader, PromptEnd::kReference, PromptEnd::kContinue}) {
    options.end = end;
    options.thinking.on = !options.thinking.on;
    if (end == PromptEnd::kContinue && messages.back().role != Role::kAssistant) continue;
    check_prompt(render(messages, options));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Json request = Json::parse({reinterpret_cast<const char*>(data), size});
    check(Json::parse(json_text(request)) == request);
    render_request(request);
  } catch (const FieldError& error) {
    check(!error.field().empty());
  } catch (const Error& error) {
    check(error.code() == ErrorCode::kInvalidArgument);
  }
  return 0;
}
