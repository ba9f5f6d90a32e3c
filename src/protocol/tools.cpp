#include "protocol/tools.h"

#include <algorithm>

#include "protocol/field_error.h"

namespace folio {
namespace {

// A "namespace" field: its name, and its description where it is an object that has one.
struct Namespace {
  std::string name, description;
};

Namespace parse_namespace(const Json* value, const std::string& field) {
  if (value == nullptr || value->is_null()) return {};
  if (const std::string* name = value->string()) return {*name, {}};
  if (value->object() == nullptr)
    fail_field(field, "must be a string or an object with a name, not ", value->type_name());
  const Json* name = value->find("name");
  if (name == nullptr || name->string() == nullptr) fail_field(field + ".name", "must be a string");
  const Json* description = value->find("description");
  return {*name->string(), description != nullptr && description->string() != nullptr ? *description->string() : ""};
}

void check_name(const std::string& name, const std::string& field) {
  if (name.empty()) fail_field(field, "must not be empty");
  if (name.size() > kMaxToolName)
    fail_field(field, "has ", name.size(), " bytes; at most ", kMaxToolName, " are allowed");
  const bool bad = std::any_of(name.begin(), name.end(), [](char c) {
    return c == '"' || c == '<' || c == '>' || static_cast<unsigned char>(c) < 0x20;
  });
  if (bad) fail_field(field, json_quote(name), " has a quote, an angle bracket or a control character in it");
}

// The function object of a tool: inside "function", or the tool itself where it is flat.
Json function_of(const Json& tool, const std::string& field) {
  if (tool.object() == nullptr) fail_field(field, "must be an object, not ", tool.type_name());
  const Json* type = tool.find("type");
  if (type != nullptr && !type->is_null() && (type->string() == nullptr || *type->string() != "function")) {
    fail_field(field + ".type", json_text(*type), " is not supported; it must be \"function\"");
  }
  if (const Json* function = tool.find("function")) {
    if (function->object() == nullptr)
      fail_field(field + ".function", "must be an object, not ", function->type_name());
    return *function;
  }
  if (tool.find("name") == nullptr) fail_field(field + ".function", "is missing");
  Json function = tool;
  std::erase_if(*function.object(), [](const Json::Member& member) { return member.key == "type"; });
  return function;
}

Tool parse_tool(const Json& json, const std::string& field) {
  Json function = function_of(json, field);
  const std::string place = json.find("function") != nullptr ? field + ".function" : field;
  const Json* name = function.find("name");
  if (name == nullptr || name->string() == nullptr) fail_field(place + ".name", "must be a string");
  std::string qualified = qualified_name(*name->string(), function.find("namespace"), place);
  qualified = qualified_name(qualified, json.find("namespace"), field);
  check_name(qualified, place + ".name");

  std::string description;
  for (const Json* space : {json.find("namespace"), function.find("namespace")}) {
    if (description.empty()) description = parse_namespace(space, field + ".namespace").description;
  }
  std::erase_if(*function.object(), [](const Json::Member& member) { return member.key == "namespace"; });
  function.set("name", Json(qualified));
  if (!description.empty()) {
    const Json* own = function.find("description");
    const bool has_own = own != nullptr && own->string() != nullptr && !own->string()->empty();
    function.set("description", Json(has_own ? description + "\n" + *own->string() : description));
  }
  return {std::move(qualified), std::move(function)};
}

const Json* properties(const Tool* tool) {
  const Json* parameters = tool != nullptr ? tool->function.find("parameters") : nullptr;
  const Json* properties = parameters != nullptr ? parameters->find("properties") : nullptr;
  return properties != nullptr && properties->object() != nullptr ? properties : nullptr;
}

// Which types a schema allows, as far as it says so.
struct Types {
  bool string = false, null = false, other = false;
  void add(const Types& more) { string |= more.string, null |= more.null, other |= more.other; }
};

Types types_of_name(const Json& name) {
  const std::string* text = name.string();
  if (text == nullptr) return {.other = true};
  return {.string = *text == "string", .null = *text == "null", .other = *text != "string" && *text != "null"};
}

Types types_of(const Json& schema) {
  Types types;
  if (const Json* type = schema.find("type")) {
    if (type->array() == nullptr) return types_of_name(*type);
    for (const Json& name : *type->array()) types.add(types_of_name(name));
    return types;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* choices = schema.find(key);
    if (choices == nullptr || choices->array() == nullptr) continue;
    for (const Json& choice : *choices->array()) types.add(types_of(choice));
    return types;
  }
  return {.other = true};
}

}  // namespace

std::string qualified_name(const std::string& name, const Json* name_space, const std::string& field) {
  constexpr std::string_view kSeparator = "::";
  const std::string space = parse_namespace(name_space, field + ".namespace").name;
  const size_t cut = name.find(kSeparator);
  if (cut != std::string::npos && name.find(kSeparator, cut + kSeparator.size()) != std::string::npos) {
    fail_field(field + ".name", json_quote(name), " has more than one namespace");
  }
  if (space.find(kSeparator) != std::string::npos) {
    fail_field(field + ".namespace", json_quote(space), " has a namespace itself");
  }
  if (space.empty()) return name;
  if (cut == std::string::npos) return concat(space, kSeparator, name);
  if (name.substr(0, cut) != space) {
    fail_field(field + ".namespace", json_quote(space), " is not the namespace in the name ", json_quote(name));
  }
  return name;
}

std::vector<Tool> parse_tools(const Json& tools, const std::string& field) {
  std::vector<Tool> parsed;
  if (tools.is_null()) return parsed;
  if (tools.array() == nullptr) fail_field(field, "must be an array, not ", tools.type_name());
  for (size_t i = 0; i < tools.array()->size(); ++i)
    parsed.push_back(parse_tool((*tools.array())[i], element_of(field, i)));
  return parsed;
}

const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  const auto found = std::find_if(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
  return found != tools.end() ? &*found : nullptr;
}

ParameterType parameter_type(const Tool* tool, std::string_view parameter) {
  const Json* declared = properties(tool);
  if (declared == nullptr) return ParameterType::kOther;
  const Json* schema = declared->find(parameter);
  if (schema == nullptr) return ParameterType::kUndeclared;
  const Types types = types_of(*schema);
  if (types.other || !types.string) return ParameterType::kOther;
  return types.null ? ParameterType::kStringOrNull : ParameterType::kString;
}

bool declares_all(const Tool* tool, const Json::Object& object) {
  const Json* declared = properties(tool);
  return declared != nullptr && std::all_of(object.begin(), object.end(), [&](const Json::Member& member) {
           return declared->find(member.key) != nullptr;
         });
}

}  // namespace folio
