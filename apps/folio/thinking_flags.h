// Flags about the model's reasoning, the same in every subcommand that encodes messages.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "protocol/thinking.h"

namespace folio {

struct ThinkingFlags {
  bool on = true;
  std::string effort;  // "" = not given
  bool keep_reasoning = false;
  CLI::Option* on_option = nullptr;
};

// Declares --[no-]thinking, --reasoning-effort and --keep-reasoning on `command`.
void add_thinking_flags(CLI::App& command, ThinkingFlags& flags);

// What the flags say, and where they say nothing the fields of a chat request, if `request` is one; it may also have
// the reference's "thinking_mode" ("thinking" or "chat"). Throws Error(kInvalidArgument).
Thinking chosen_thinking(const ThinkingFlags& flags, const Json& request = Json());

// An effort as it is typed: 1 to 100, low, high or max. `name` names it in the message. Throws Error(kInvalidArgument).
int typed_effort(const std::string& text, const std::string& name);

}  // namespace folio
