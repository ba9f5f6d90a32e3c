#include "protocol/thinking.h"

#include <algorithm>
#include <array>

#include "protocol/field_error.h"

namespace folio {
namespace {

struct Named {
  std::string_view name;
  int effort;
};

constexpr int kLow = 50, kHigh = 75, kMax = 100;
constexpr std::array<Named, 3> kEncoderNames = {{{"low", kLow}, {"high", kHigh}, {"max", kMax}}};
constexpr std::array<Named, 8> kApiNames = {{{"none", 0},
                                             {"minimal", kLow},
                                             {"low", kLow},
                                             {"medium", kHigh},
                                             {"high", kHigh},
                                             {"xhigh", kHigh},
                                             {"max", kMax},
                                             {"ultra", kMax}}};

template <size_t N>
int effort_of(const Json& effort, const std::array<Named, N>& names, std::string_view field) {
  if (const std::string* name = effort.string()) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const Named& n) { return n.name == *name; });
    if (found != names.end()) return found->effort;
  }
  if (const auto number = effort.integer(); number && *number >= 1 && *number <= 100) return static_cast<int>(*number);
  std::string known;
  for (const Named& named : names) known.append(named.name).append(", ");
  fail_field(std::string(field), json_text(effort), " is no effort; it must be ", known, "or an integer from 1 to 100");
}

// A member that is there and not null.
const Json* given(const Json* object, std::string_view key) {
  const Json* value = object != nullptr ? object->find(key) : nullptr;
  return value != nullptr && !value->is_null() ? value : nullptr;
}

bool boolean(const Json& value, const std::string& field) {
  const auto boolean = value.boolean();
  if (!boolean) fail_field(field, "must be true or false, not ", json_text(value));
  return *boolean;
}

void check_object(const Json* value, const std::string& field) {
  if (value != nullptr && value->object() == nullptr) fail_field(field, "must be an object, not ", value->type_name());
}

// Whether "thinking": {"type"} speaks, and what it says.
std::optional<bool> thinking_type(const Json* thinking) {
  const Json* type = given(thinking, "type");
  if (type == nullptr) return std::nullopt;
  const std::string* name = type->string();
  if (name != nullptr && (*name == "enabled" || *name == "adaptive")) return true;
  if (name != nullptr && *name == "disabled") return false;
  fail_field("thinking.type", json_text(*type), R"( is unknown; it must be "enabled", "adaptive" or "disabled")");
}

}  // namespace

int encoder_effort(const Json& effort, std::string_view field) { return effort_of(effort, kEncoderNames, field); }

int api_effort(const Json& effort, std::string_view field) { return effort_of(effort, kApiNames, field); }

Thinking requested_thinking(const Json& request, const Thinking& defaults) {
  Thinking result = defaults;
  const Json* thinking = given(&request, "thinking");
  const Json* kwargs = given(&request, "chat_template_kwargs");
  check_object(thinking, "thinking");
  check_object(kwargs, "chat_template_kwargs");

  // The first of these that is given decides. "none" is no effort, so a later one may still name one.
  bool off = false;
  std::optional<int> effort;
  const auto consider = [&](const Json* object, const char* key, const std::string& field) {
    const Json* value = given(object, key);
    if (value == nullptr) return;
    const int asked = api_effort(*value, field);
    if (asked == 0) {
      off = true;
    } else if (!effort) {
      effort = asked;
    }
  };
  consider(thinking, "effort", "thinking.effort");
  consider(thinking, "reasoning_effort", "thinking.reasoning_effort");
  consider(&request, "reasoning_effort", "reasoning_effort");
  consider(kwargs, "reasoning_effort", "chat_template_kwargs.reasoning_effort");
  if (effort) result.effort = *effort;

  const Json* thinking_kwarg = given(kwargs, "thinking");
  const Json* enable_kwarg = given(kwargs, "enable_thinking");
  if (const auto type = thinking_type(thinking)) {
    result.on = *type;
  } else if (off) {
    result.on = false;
  } else if (thinking_kwarg != nullptr) {
    result.on = boolean(*thinking_kwarg, "chat_template_kwargs.thinking");
  } else if (enable_kwarg != nullptr) {
    result.on = boolean(*enable_kwarg, "chat_template_kwargs.enable_thinking");
  }
  if (const Json* drop = given(kwargs, "drop_thinking")) {
    result.drop_reasoning = boolean(*drop, "chat_template_kwargs.drop_thinking");
  }
  return result;
}

}  // namespace folio
