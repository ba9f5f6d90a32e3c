#include "server/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "base/error.h"
#include "server/api_error.h"

namespace folio {
namespace {

constexpr int64_t kLongestToken = 128;  // bytes
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxSaltBytes = 4096;
constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxBadWords = 1024;
constexpr size_t kMaxBadWordBytes = 256;

uint64_t random_seed() {
  thread_local std::mt19937_64 random{(uint64_t{std::random_device{}()} << 32) ^ std::random_device{}()};
  return random();
}

void read_float(const Fields& fields, const char* name, double least, double most, float& value) {
  if (const auto number = fields.number(name, least, most)) value = static_cast<float>(*number);
}

void read_logit_bias(const Fields& fields, int64_t vocab, Request& request) {
  const Json* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  if (std::ssize(*biases->object()) > kMaxLogitBias) {
    fields.refuse("logit_bias", concat("an object of at most ", kMaxLogitBias, " entries"));
  }
  const Fields values(*biases, fields.path("logit_bias"));
  for (const auto& [key, value] : *biases->object()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab) {
      fields.refuse("logit_bias", concat("an object whose keys are token ids from 0 to ", vocab - 1));
    }
    if (const auto delta = values.number(key, -100, 100)) {
      request.logit_bias.push_back({.id = id, .delta = static_cast<float>(*delta)});
    }
  }
}

void read_stop_ids(const Fields& fields, int64_t vocab, Request& request) {
  const Json::Array* ids = fields.array("stop_token_ids");
  if (ids == nullptr) return;
  request.stop_ids = read_ids(*ids, fields.path("stop_token_ids"));
  const bool inside =
      std::all_of(request.stop_ids.begin(), request.stop_ids.end(), [&](int32_t id) { return id < vocab; });
  if (!inside || std::ssize(request.stop_ids) > kMaxStopIds) {
    fields.refuse("stop_token_ids", concat("at most ", kMaxStopIds, " token ids from 0 to ", vocab - 1));
  }
}

}  // namespace

std::string requested_model(const Fields& fields, const ServedModel& model) {
  const std::string name = fields.string("model").value_or(model.names.front());
  if (std::find(model.names.begin(), model.names.end(), name) == model.names.end()) {
    throw ApiError(404, concat("The model `", name, "` does not exist."), "model");
  }
  return name;
}

void read_sampling(const Fields& fields, const ServedModel& model, Request& request) {
  SamplingParams& sampling = request.sampling;
  read_float(fields, "temperature", 0, 2, sampling.temperature);
  read_float(fields, "top_p", 1e-9, 1, sampling.top_p);
  read_float(fields, "min_p", 0, 1, sampling.min_p);
  read_float(fields, "presence_penalty", -2, 2, request.presence_penalty);
  read_float(fields, "frequency_penalty", -2, 2, request.frequency_penalty);
  read_float(fields, "repetition_penalty", 1e-3, 1e3, request.repetition_penalty);
  if (const auto k = fields.integer("top_k", -1, INT32_MAX)) sampling.top_k = static_cast<int32_t>(*k);
  const auto seed = fields.integer("seed");
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : random_seed();
  if (const auto n = fields.integer("n", 1, kMaxChoices)) request.choices = static_cast<int32_t>(*n);
  if (const auto least = fields.integer("min_tokens", 0)) request.min_tokens = *least;
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  request.exact = fields.boolean("exact").value_or(false);
  if (fields.integer("priority").value_or(0) != 0) {
    fields.refuse("priority", "0 or left out: requests are taken in the order in which they come");
  }
  if (const auto salt = fields.string("cache_salt")) {
    if (salt->empty() || salt->size() > kMaxSaltBytes) {
      fields.refuse("cache_salt", concat("a string of 1 to ", kMaxSaltBytes, " bytes"));
    }
    request.cache_salt = *salt;
  }
  read_logit_bias(fields, model.vocab_size, request);
  read_stop_ids(fields, model.vocab_size, request);
}

std::shared_ptr<const std::vector<std::vector<int32_t>>> read_bad_words(const Fields& fields,
                                                                        const ServedModel& model) {
  const std::vector<std::string> words = fields.strings("bad_words");
  if (words.empty()) return nullptr;
  const bool short_enough =
      std::ranges::all_of(words, [](const std::string& word) { return word.size() <= kMaxBadWordBytes; });
  if (words.size() > kMaxBadWords || !short_enough) {
    fields.refuse("bad_words", concat("at most ", kMaxBadWords, " strings of at most ", kMaxBadWordBytes, " bytes"));
  }
  auto sequences = std::make_shared<std::vector<std::vector<int32_t>>>();
  for (const std::string& word : words) {
    sequences->push_back(model.tokenizer->encode(word));
    if (!word.starts_with(' ')) sequences->push_back(model.tokenizer->encode(" " + word));
  }
  return sequences;
}

std::optional<int64_t> read_truncation(const Fields& fields) {
  const auto tokens = fields.integer("truncate_prompt_tokens", -1);
  if (tokens == 0) fields.refuse("truncate_prompt_tokens", "-1 or at least 1");
  return tokens;
}

void truncate_prompt(std::vector<int32_t>& prompt, std::optional<int64_t> truncation, std::optional<int64_t> asked,
                     int64_t max_model_len) {
  if (!truncation) return;
  const int64_t room = max_model_len - std::clamp<int64_t>(asked.value_or(1), 1, max_model_len - 1);
  const int64_t keep = *truncation == -1 ? room : *truncation;
  if (std::ssize(prompt) > keep) prompt.erase(prompt.begin(), prompt.end() - keep);
}

StopFields read_stops(const Fields& fields, std::string_view field) {
  StopFields stops;
  stops.strings = fields.strings(field);
  const bool short_enough = std::all_of(stops.strings.begin(), stops.strings.end(),
                                        [](const std::string& stop) { return stop.size() <= kMaxStopBytes; });
  if (stops.strings.size() > kMaxStops || !short_enough) {
    fields.refuse(field, concat("at most ", kMaxStops, " strings of at most ", kMaxStopBytes, " bytes"));
  }
  stops.include = fields.boolean("include_stop_str_in_output").value_or(false);
  stops.skip_special = fields.boolean("skip_special_tokens").value_or(true);
  return stops;
}

void limit_tokens(Request& request, std::optional<int64_t> asked, int64_t otherwise, int64_t max_model_len) {
  const int64_t prompt = std::ssize(request.prompt);
  const int64_t room = max_model_len - prompt;
  const int64_t wanted =
      asked.value_or(otherwise > 0 ? std::min(otherwise, std::max<int64_t>(room, 1)) : std::max<int64_t>(room, 1));
  if (wanted > room) {
    throw ApiError(400,
                   concat("This model's maximum context length is ", max_model_len, " tokens. However, you requested ",
                          wanted, " output tokens and your prompt contains ", prompt, " input tokens, for a total of ",
                          static_cast<uint64_t>(wanted) + static_cast<uint64_t>(prompt),
                          " tokens. Please reduce the length of the prompt or the number of requested tokens."),
                   "input_tokens");
  }
  request.max_tokens = wanted;
  if (request.min_tokens > wanted) {
    throw ApiError(400,
                   concat("`min_tokens`, ", request.min_tokens, ", must not be more than max_tokens, ", wanted, "."),
                   "min_tokens");
  }
}

void check_text_length(size_t bytes, const ServedModel& model) {
  const int64_t least = static_cast<int64_t>(bytes) / kLongestToken;
  if (least < model.max_model_len) return;
  throw ApiError(400,
                 concat("This model's maximum context length is ", model.max_model_len,
                        " tokens. However, you requested at least 1 output tokens and your prompt contains at least ",
                        least, " input tokens. Please reduce the length of the prompt."),
                 "input_tokens");
}

}  // namespace folio
