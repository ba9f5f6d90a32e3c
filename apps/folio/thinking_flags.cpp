#include "thinking_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "protocol/field_error.h"

namespace folio {

void add_thinking_flags(CLI::App& command, ThinkingFlags& flags) {
  const std::string group = "Thinking";
  flags.on_option =
      command.add_flag("--thinking,!--no-thinking", flags.on, "Reason before the answer (default: on)")->group(group);
  command
      .add_option("--reasoning-effort", flags.effort,
                  "How thoroughly: 1 to 100, low (50), high (75) or max (100) (default: high)")
      ->type_name("EFFORT")
      ->group(group);
  command
      .add_flag("--keep-reasoning", flags.keep_reasoning,
                "Show the model the reasoning of earlier turns, which is left out unless there are tools")
      ->group(group);
}

Thinking chosen_thinking(const ThinkingFlags& flags, const Json& request) {
  Thinking thinking;
  if (const Json* mode = request.find("thinking_mode")) {
    const std::string* name = mode->string();
    if (name == nullptr || (*name != "thinking" && *name != "chat")) {
      fail_field("thinking_mode", R"(must be "thinking" or "chat")");
    }
    thinking.on = *name == "thinking";
  }
  thinking = requested_thinking(request, thinking);
  if (flags.on_option->count() > 0) thinking.on = flags.on;
  if (!flags.effort.empty()) thinking.effort = typed_effort(flags.effort, "--reasoning-effort");
  if (flags.keep_reasoning) thinking.drop_reasoning = false;
  return thinking;
}

int typed_effort(const std::string& text, const std::string& name) {
  const bool is_number = !text.empty() && text.size() < 4 &&
                         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return encoder_effort(is_number ? Json(static_cast<int64_t>(std::stoi(text))) : Json(text), name);
}

}  // namespace folio
