// Tool definitions of a request and their schemas (protocol spec 2.4).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/json.h"

namespace folio {

constexpr size_t kMaxToolName = 256;  // bytes

struct Tool {
  std::string name;  // qualified when it has a namespace: "math::add"
  Json function;     // name, description, parameters, ... as they are shown to the model
};

// Reads a list of tools in the form of chat completions, {"type": "function", "function": {...}}, or flat as in
// responses, {"type": "function", "name": ..., ...}. null: none. Namespaces ("namespace" beside or inside the function,
// or a qualified name) are folded into the name, their descriptions into the description. Throws FieldError; `field`
// names the list in it.
std::vector<Tool> parse_tools(const Json& tools, const std::string& field = "tools");

// The tool of that name, null when there is none.
const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name);

// "ns::name" from the bare or qualified `name` and the value of a "namespace" field, which is null, a string or an
// object with a name. Throws FieldError when they contradict each other or are nested.
std::string qualified_name(const std::string& name, const Json* name_space, const std::string& field);

// What a parameter's schema says about the type of its value.
enum class ParameterType : uint8_t {
  kUndeclared,    // the tool has a list of parameters and this is none of them
  kString,        // nothing but a string
  kStringOrNull,  // nothing but a string or null
  kOther,         // something else, or nothing is known
};
ParameterType parameter_type(const Tool* tool, std::string_view parameter);

// The tool declares every one of the object's keys as a parameter.
bool declares_all(const Tool* tool, const Json::Object& object);

}  // namespace folio
