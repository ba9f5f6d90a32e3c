#include "server/model_routes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/api_error.h"
#include "server/openai_chat.h"
#include "server/reply_json.h"

namespace folio {
namespace {

ReplyJson model_json(const ServedModel& model, std::string_view name, int64_t created) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "folio"},
          {"root", model.root},
          {"parent", nullptr},
          {"max_model_len", model.max_model_len},
          {"permission", ReplyJson::array()}};
}

HttpReply json_reply(const ReplyJson& body) { return {.body = dump(body), .headers = {}}; }

// The ids of what is to be tokenised: a prompt, or a chat.
std::vector<int32_t> ids_of(const Json& body, const ServedModel& model) {
  const Fields fields(body);
  if (!fields.has("prompt") && fields.has("messages")) {
    ChatRequest chat = read_chat_prompt(body, model);
    check_tool_choice(chat);
    return render_chat(chat, model).tokens(*model.tokenizer, model.special_in_user_text);
  }
  const auto prompt = fields.has("prompt") ? fields.string("prompt") : fields.string("content");
  if (!prompt) fields.refuse("prompt", "a string");
  // llama.cpp's form names it "content" and adds nothing unless asked.
  const bool add_bos = fields.boolean("add_special_tokens").value_or(fields.has("prompt"));
  std::vector<int32_t> ids = model.tokenizer->encode(*prompt);
  if (add_bos && (ids.empty() || ids.front() != model.bos_token_id)) ids.insert(ids.begin(), model.bos_token_id);
  return ids;
}

}  // namespace

HttpReply list_models(const ServedModel& model, int64_t created) {
  ReplyJson data = ReplyJson::array();
  for (const std::string& name : model.names) data.push_back(model_json(model, name, created));
  return json_reply({{"object", "list"}, {"data", std::move(data)}});
}

HttpReply show_model(const ServedModel& model, std::string_view id, int64_t created) {
  if (std::find(model.names.begin(), model.names.end(), id) == model.names.end()) {
    throw ApiError(404, concat("The model `", id, "` does not exist."), "model");
  }
  return json_reply(model_json(model, id, created));
}

HttpReply tokenizer_info(const ServedModel& model) {
  ReplyJson info = ReplyJson::parse(model.tokenizer_config, nullptr, false);
  if (!info.is_object()) info = ReplyJson::object();
  const auto set = [&](const char* name, ReplyJson value) {
    if (!info.contains(name) || info[name].is_null()) info[name] = std::move(value);
  };
  const auto token = [&](const char* name, int32_t id) {
    // Some configurations have the token as an object with its text in "content".
    if (info.contains(name) && info[name].is_object() && info[name].contains("content"))
      info[name] = info[name]["content"];
    set(name, model.tokenizer->spelling(id));
  };
  token("bos_token", model.bos_token_id);
  token("eos_token", model.eos_token_id);
  token("pad_token", model.pad_token_id);
  set("tokenizer_class", "PreTrainedTokenizerFast");
  set("model_max_length", model.max_model_len);
  if (!info.contains("chat_template")) info["chat_template"] = nullptr;
  return json_reply(info);
}

HttpReply tokenize(const Json& body, const ApiContext& context) {
  const Fields fields(body);
  const ServedModel& model = context.model;
  requested_model(fields, model);
  const std::vector<int32_t> ids = ids_of(body, model);
  ReplyJson strings;
  if (fields.boolean("return_token_strs").value_or(false)) {
    strings = ReplyJson::array();
    for (const int32_t id : ids) strings.push_back(model.tokenizer->spelling(id));
  }
  return json_reply(
      {{"count", ids.size()}, {"max_model_len", model.max_model_len}, {"tokens", ids}, {"token_strs", strings}});
}

HttpReply detokenize(const Json& body, const ApiContext& context) {
  const Fields fields(body);
  const ServedModel& model = context.model;
  requested_model(fields, model);
  const Json::Array* tokens = fields.array("tokens");
  if (tokens == nullptr) fields.refuse("tokens", "an array of token ids");
  const std::vector<int32_t> ids = read_ids(*tokens, "tokens");
  try {
    const std::string text = model.tokenizer->decode(ids);
    return json_reply({{"prompt", text}, {"content", text}});
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "tokens");
  }
}

}  // namespace folio
