#include "server/responses_items.h"

#include "base/error.h"
#include "server/api_error.h"

namespace folio {
namespace {

// A string, or a list of input_text, output_text, refusal and input_image.
std::vector<ContentPart> read_content(const Json* content, const std::string& name) {
  std::vector<ContentPart> parts;
  if (content == nullptr || content->is_null()) return parts;
  if (const std::string* text = content->string()) return {{.text = *text}};
  if (content->array() == nullptr) throw ApiError(400, concat("`", name, "` must be a string or an array."), name);
  for (size_t i = 0; i < content->array()->size(); ++i) {
    const Fields part((*content->array())[i], concat(name, "[", i, "]"));
    const std::string type = part.string("type").value_or("");
    if (type == "input_text" || type == "output_text" || type == "text") {
      parts.push_back({.text = part.string("text").value_or("")});
    } else if (type == "refusal") {
      parts.push_back({.text = part.string("refusal").value_or("")});
    } else if (type == "input_image") {
      ContentPart image;
      image.kind = ContentPart::Kind::kImage;
      image.image = part.string("image_url").value_or("");
      parts.push_back(std::move(image));
    } else {
      part.refuse("type", "input_text, output_text, refusal or input_image");
    }
  }
  return parts;
}

// The texts of reasoning, or of its summary where there is nothing else.
std::string reasoning_text(const Fields& item) {
  std::string text;
  for (const char* member : {"content", "summary"}) {
    const Json::Array* parts = item.array(member);
    if (parts == nullptr) continue;
    for (const Json& part : *parts) text += Fields(part, item.path(member)).string("text").value_or("");
    if (!text.empty()) break;
  }
  return text;
}

class InputReader {
 public:
  InputReader(DeveloperRole developer, const ResponseStore& stored, std::vector<Message>& messages)
      : developer_(developer), stored_(stored), messages_(messages) {}

  void read(const Json& value, const std::string& name) {
    const Fields item(value, name);
    const std::string type = item.string("type").value_or("message");
    if (type == "message") {
      read_message(item);
    } else if (type == "reasoning") {
      assistant().reasoning += reasoning_text(item);
    } else if (type == "function_call") {
      read_call(item);
    } else if (type == "custom_tool_call") {
      Json arguments{Json::Object{}};
      arguments.set(kFreeText, Json(item.string("input").value_or("")));
      add_call(item, item.string("name").value_or(""), std::move(arguments));
    } else if (type == "function_call_output" || type == "custom_tool_call_output") {
      Message result;
      result.role = Role::kTool;
      result.tool_call_id = item.string("call_id").value_or("");
      result.content = read_content(item.find("output"), item.path("output"));
      messages_.push_back(std::move(result));
      in_turn_ = false;
    } else if (type == "item_reference") {
      const std::string id = item.string("id").value_or("");
      if (id.empty()) item.refuse("id", "given");
      const auto stored = stored_.find_item(id);
      if (!stored) throw ApiError(404, concat("There is no item `", id, "` in a stored response."), item.path("id"));
      read(*stored, name);
    }
    // Items of hosted tools say nothing to the model.
  }

 private:
  void read_message(const Fields& item) {
    const std::string role = item.string("role").value_or("");
    std::vector<ContentPart> content = read_content(item.find("content"), item.path("content"));
    if (role == "assistant") {
      Message& turn = assistant();
      turn.content.insert(turn.content.end(), content.begin(), content.end());
      return;
    }
    Message message;
    if (role == "system" || (role == "developer" && developer_ == DeveloperRole::kSystem)) {
      message.role = Role::kSystem;
    } else if (role == "developer") {
      message.role = Role::kDeveloper;
    } else if (role != "user") {
      item.refuse("role", "user, assistant, system or developer");
    }
    message.content = std::move(content);
    messages_.push_back(std::move(message));
    in_turn_ = false;
  }

  void read_call(const Fields& item) {
    const std::string name = item.string("name").value_or("");
    const Json* arguments = item.find("arguments");
    add_call(item, qualified_name(name, item.find("namespace"), item.path("namespace")),
             arguments == nullptr ? Json(Json::Object{}) : normalised_arguments(*arguments));
  }

  void add_call(const Fields& item, const std::string& name, Json arguments) {
    if (name.empty()) item.refuse("name", "given");
    assistant().tool_calls.push_back(
        {.id = item.string("call_id").value_or(""), .name = name, .arguments = std::move(arguments)});
  }

  // The assistant's turn that is open, or a new one.
  Message& assistant() {
    if (!in_turn_) {
      messages_.emplace_back();
      messages_.back().role = Role::kAssistant;
      in_turn_ = true;
    }
    return messages_.back();
  }

  DeveloperRole developer_;
  const ResponseStore& stored_;
  std::vector<Message>& messages_;
  bool in_turn_ = false;  // the last message is an assistant's turn to which more may come
};

Json::Array as_array(const Json& list) { return *list.array(); }

// A custom tool as a function of one text.
Json custom_function(const Fields& tool) {
  Json text{Json::Object{}};
  text.set("type", Json("string"));
  Json properties{Json::Object{}};
  properties.set(kFreeText, std::move(text));
  Json parameters{Json::Object{}};
  parameters.set("type", Json("object"));
  parameters.set("properties", std::move(properties));
  parameters.set("required", Json(Json::Array{Json(kFreeText)}));
  Json function{Json::Object{}};
  function.set("type", Json("function"));
  function.set("name", Json(tool.string("name").value_or("")));
  if (const auto description = tool.string("description")) function.set("description", Json(*description));
  function.set("parameters", std::move(parameters));
  return function;
}

}  // namespace

void read_input(const Json& input, DeveloperRole developer, const ResponseStore& stored,
                std::vector<Message>& messages) {
  if (const std::string* text = input.string()) {
    messages.push_back(text_message(Role::kUser, *text));
    return;
  }
  if (input.array() == nullptr) throw ApiError(400, "`input` must be a string or an array of items.", "input");
  InputReader reader(developer, stored, messages);
  for (size_t i = 0; i < input.array()->size(); ++i) reader.read((*input.array())[i], concat("input[", i, "]"));
}

ResponseTools read_response_tools(const Fields& fields) {
  ResponseTools read;
  const Json::Array* tools = fields.array("tools");
  if (tools == nullptr) return read;
  Json::Array functions;
  for (size_t i = 0; i < tools->size(); ++i) {
    const Fields tool((*tools)[i], concat("tools[", i, "]"));
    const std::string type = tool.string("type").value_or("");
    if (type == "function") {
      functions.push_back((*tools)[i]);
    } else if (type == "custom") {
      functions.push_back(custom_function(tool));
      read.custom.insert(tool.string("name").value_or(""));
    } else if (type == "namespace") {
      Json name{Json::Object{}};
      name.set("name", Json(tool.string("name").value_or("")));
      if (const auto description = tool.string("description")) name.set("description", Json(*description));
      const Json* members = tool.find("tools");
      if (members == nullptr || members->array() == nullptr) tool.refuse("tools", "an array of functions");
      for (Json member : as_array(*members)) {
        if (member.object() == nullptr) tool.refuse("tools", "an array of functions");
        member.set("namespace", name);
        functions.push_back(std::move(member));
      }
    }
  }
  if (!functions.empty()) read.tools = parse_tools(Json(std::move(functions)));
  return read;
}

}  // namespace folio
