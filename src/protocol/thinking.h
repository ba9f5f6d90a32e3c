// Whether the model reasons before it answers, and how much (protocol spec 2.9, 5.4).
#pragma once

#include <string_view>

#include "protocol/json.h"

namespace folio {

struct Thinking {
  bool on = true;
  int effort = 75;             // 1 to 100; conditions the model, limits nothing
  bool drop_reasoning = true;  // leave out the reasoning of earlier turns, unless there are tools
};

// An effort as the encoding knows it: an integer from 1 to 100, or "low" (50), "high" (75), "max" (100). Throws
// FieldError.
int encoder_effort(const Json& effort, std::string_view field);

// The setting that a chat request asks for: the first of "thinking", "reasoning_effort" and "chat_template_kwargs" that
// speaks of it, else the default. Effort names are those of the API (minimal, low, medium, high, xhigh, max, ultra,
// none = off). Throws FieldError.
Thinking requested_thinking(const Json& request, const Thinking& defaults = {});

// An effort by its API name or number, for fields of other APIs: 0 for "none". Throws FieldError.
int api_effort(const Json& effort, std::string_view field);

}  // namespace folio
