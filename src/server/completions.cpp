#include "server/completions.h"

#include <algorithm>

#include "base/error.h"
#include "protocol/render.h"
#include "server/api_error.h"
#include "server/completion_answer.h"
#include "server/format_fields.h"
#include "server/sampling_fields.h"
#include "server/stream_fields.h"
#include "server/token_policies.h"
#include "tokenizer/stop_policy.h"

namespace folio {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;
constexpr size_t kMaxPrompts = 1024;

struct Prompts {
  std::vector<std::vector<int32_t>> ids;
  std::vector<bool> raw_text;

  void add(std::vector<int32_t> tokens, bool text) {
    ids.push_back(std::move(tokens));
    raw_text.push_back(text);
  }
};

// The ids of a text prompt: BOS in front unless it is there or not wanted.
std::vector<int32_t> encode_text(const std::string& text, bool add_bos, const ServedModel& model) {
  std::vector<int32_t> ids = model.tokenizer->encode(text);
  if (add_bos && (ids.empty() || ids.front() != model.bos_token_id)) ids.insert(ids.begin(), model.bos_token_id);
  return ids;
}

// A string, strings, ids, or lists of ids.
Prompts read_prompts(const Fields& fields, const ServedModel& model) {
  if (fields.has("prompt_embeds")) throw ApiError(501, "`prompt_embeds` is not supported.", "prompt_embeds");
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fields.refuse("prompt", "given");
  const bool add_bos = fields.boolean("add_special_tokens").value_or(true);
  const auto suffix = fields.string("suffix");
  const bool truncated = fields.has("truncate_prompt_tokens");
  const auto text_ids = [&](const std::string& text) {
    if (!truncated) check_text_length(text.size(), model);
    return suffix ? encode_text(fill_in_the_middle(text, *suffix), false, model) : encode_text(text, add_bos, model);
  };
  Prompts prompts;
  if (const std::string* text = prompt->string()) {
    prompts.add(text_ids(*text), true);
    return prompts;
  }
  const Json::Array* items = prompt->array();
  if (items == nullptr || items->empty()) fields.refuse("prompt", "a string, token ids, or a list of these");
  if (suffix && items->front().string() == nullptr) fields.refuse("prompt", "text when there is a `suffix`");
  if (items->front().string() == nullptr && items->front().array() == nullptr) {
    prompts.add(read_ids(*items, "prompt"), false);
    return prompts;
  }
  if (items->size() > kMaxPrompts) fields.refuse("prompt", concat("a list of at most ", kMaxPrompts, " prompts"));
  for (const Json& item : *items) {
    if (const std::string* text = item.string()) {
      prompts.add(text_ids(*text), true);
    } else if (item.array() != nullptr) {
      prompts.add(read_ids(*item.array(), "prompt"), false);
    } else {
      fields.refuse("prompt", "a string, token ids, or a list of these");
    }
  }
  return prompts;
}

void check_ids(const std::vector<int32_t>& ids, const ServedModel& model) {
  if (ids.empty()) throw ApiError(400, "`prompt` must have at least one token.", "prompt");
  for (const int32_t id : ids) {
    if (id >= model.vocab_size) {
      throw ApiError(
          400, concat("`prompt`: token id ", id, " is not in the vocabulary: ids are 0 to ", model.vocab_size - 1, "."),
          "prompt");
    }
  }
}

// What acts on the tokens of every prompt's answers.
struct PolicyFields {
  std::vector<std::string> stops;
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const std::vector<std::vector<int32_t>>> bad_words;
  std::shared_ptr<const std::vector<uint64_t>> allowed;
};

PolicyFields read_policies(const Fields& fields, const StopFields& stops, const ApiContext& context) {
  PolicyFields read{.stops = stops.strings,
                    .grammar = nullptr,
                    .bad_words = read_bad_words(fields, context.model),
                    .allowed = read_allowed_ids(fields, context.model)};
  GrammarSpec spec;
  read_format(fields, spec);
  if (spec.content != GrammarSpec::Content::kNone) read.grammar = context.grammars.compile(spec);
  return read;
}

std::vector<std::shared_ptr<TokenPolicy>> make_policies(const PolicyFields& fields, const Tokenizer& tokenizer,
                                                        int32_t choices) {
  std::vector<std::shared_ptr<TokenPolicy>> policies;
  for (int32_t i = 0; i < choices; ++i) {
    std::vector<std::shared_ptr<TokenPolicy>> parts;
    if (!fields.stops.empty()) parts.push_back(std::make_shared<StopStringPolicy>(tokenizer, fields.stops));
    if (fields.grammar != nullptr) parts.push_back(fields.grammar->make_policy());
    if (fields.bad_words != nullptr) parts.push_back(std::make_shared<BadWordsPolicy>(fields.bad_words));
    if (fields.allowed != nullptr) parts.push_back(std::make_shared<AllowedIdsPolicy>(fields.allowed));
    if (const auto policy = chain_policies(std::move(parts))) policies.push_back(policy);
  }
  return policies;
}

}  // namespace

Generation read_completion(const Json& body, const ApiContext& context) {
  const ServedModel& model = context.model;
  const Fields fields(body);
  CompletionOptions options;
  options.id = reply_id("cmpl-", context);
  options.model = requested_model(fields, model);
  Request common;
  read_sampling(fields, model, common);
  const StopFields stops = read_stops(fields);
  const StreamFields stream = read_stream(fields);
  options.stream = stream.stream;
  options.include_usage = stream.include_usage;
  options.continuous_usage = stream.continuous_usage;
  options.choices = common.choices;
  options.echo = fields.boolean("echo").value_or(false);
  options.ids_as_tokens = fields.boolean("return_tokens_as_token_ids").value_or(false);
  options.return_ids = fields.boolean("return_token_ids").value_or(false);
  options.skip_special = stops.skip_special;
  options.stops = stops.strings;
  options.include_stop = stops.include;
  options.stop_ids = common.stop_ids;
  options.ignore_eos = common.ignore_eos;
  options.eos = model.eos_token_id;
  if (const auto k = fields.integer("logprobs", 0, kMaxTopLogprobs)) options.logprobs = static_cast<int32_t>(*k);
  if (const auto k = fields.integer("prompt_logprobs", 0, kMaxTopLogprobs)) {
    if (options.stream) fields.refuse("prompt_logprobs", "left out of streams");
    options.prompt_logprobs = static_cast<int32_t>(*k);
  }
  const auto max_tokens = fields.integer("max_tokens", options.echo ? 0 : 1);
  options.drop_tokens = max_tokens && *max_tokens == 0;
  common.logprobs = std::max(options.logprobs.value_or(0), options.prompt_logprobs.value_or(0));
  common.logprobs = static_cast<int32_t>(std::min<int64_t>(common.logprobs, model.vocab_size));
  common.wants_prompt_rows = options.prompt_logprobs || (options.echo && options.logprobs);

  const PolicyFields policies = read_policies(fields, stops, context);
  const auto truncation = read_truncation(fields);
  Prompts prompts = read_prompts(fields, model);
  Generation generation{
      .id = options.id, .model = options.model, .stream = options.stream, .requests = {}, .answer = {}};
  for (std::vector<int32_t>& ids : prompts.ids) {
    check_ids(ids, model);
    truncate_prompt(ids, truncation, max_tokens, model.max_model_len);
    auto request = std::make_shared<Request>(common);
    request->prompt = ids;
    limit_tokens(*request, options.drop_tokens ? 1 : max_tokens, kDefaultMaxTokens, model.max_model_len);
    request->policies = make_policies(policies, *model.tokenizer, common.choices);
    generation.requests.push_back(std::move(request));
  }
  options.prompts = std::move(prompts.ids);
  options.raw_text = std::move(prompts.raw_text);
  generation.answer = std::make_unique<CompletionAnswer>(*model.tokenizer, std::move(options));
  return generation;
}

}  // namespace folio
