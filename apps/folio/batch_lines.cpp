#include "batch_lines.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "checkpoint/json.h"
#include "engine/model_runner.h"
#include "json_line.h"

namespace folio {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr auto kFields =
    std::to_array<std::string_view>({"id", "prompt", "tokens", "max_tokens", "min_tokens", "temperature", "top_p",
                                     "top_k", "min_p", "seed", "repetition_penalty", "frequency_penalty",
                                     "presence_penalty", "logit_bias", "logprobs", "stop", "ignore_eos", "n", "exact"});

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  fail(ErrorCode::kInvalidArgument, parts...);
}

// Sets `value` from field `name` if the line has it; null counts as not there.
void read_field(const json& line, const char* name, const char* what, auto is_one, auto&& take) {
  const auto field = line.find(name);
  if (field == line.end() || field->is_null()) return;
  if (!is_one(*field)) refuse("\"", name, "\" must be ", what);
  take(*field);
}

bool is_int(const json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() || value.get<uint64_t>() <= std::numeric_limits<int64_t>::max());
}
bool is_int32(const json& value) {
  return is_int(value) && value.get<int64_t>() >= std::numeric_limits<int32_t>::min() &&
         value.get<int64_t>() <= std::numeric_limits<int32_t>::max();
}

void read_number(const json& line, const char* name, float& value) {
  read_field(
      line, name, "a number", [](const json& j) { return j.is_number(); },
      [&](const json& j) { value = j.get<float>(); });
}
void read_int(const json& line, const char* name, int32_t& value) {
  read_field(line, name, "an integer", is_int32, [&](const json& j) { value = j.get<int32_t>(); });
}
void read_int64(const json& line, const char* name, int64_t& value) {
  read_field(line, name, "an integer", is_int, [&](const json& j) { value = j.get<int64_t>(); });
}
void read_flag(const json& line, const char* name, bool& value) {
  read_field(
      line, name, "true or false", [](const json& j) { return j.is_boolean(); },
      [&](const json& j) { value = j.get<bool>(); });
}

std::vector<int32_t> read_prompt(const json& line, const Tokenizer& tokenizer) {
  std::vector<int32_t> prompt;
  const auto has = [&](const char* name) { return line.contains(name) && !line[name].is_null(); };
  if (has("prompt") == has("tokens")) refuse("give either \"prompt\" or \"tokens\"");
  read_field(
      line, "prompt", "a string", [](const json& j) { return j.is_string(); },
      [&](const json& j) { prompt = tokenizer.encode(j.get_ref<const std::string&>()); });
  const auto is_ids = [](const json& j) { return j.is_array() && std::all_of(j.begin(), j.end(), is_int32); };
  read_field(line, "tokens", "an array of token ids", is_ids,
             [&](const json& j) { prompt = j.get<std::vector<int32_t>>(); });
  return prompt;
}

std::vector<std::string> read_stops(const json& line, const std::vector<std::string>& defaults) {
  constexpr size_t kMaxStops = 64;
  std::vector<std::string> stops = defaults;
  const auto is_text = [](const json& j) { return j.is_string(); };
  const auto is_stops = [&](const json& j) {
    return is_text(j) || (j.is_array() && j.size() <= kMaxStops && std::all_of(j.begin(), j.end(), is_text));
  };
  read_field(line, "stop", "a string or an array of at most 64 strings", is_stops, [&](const json& j) {
    if (is_text(j)) {
      stops = {j.get<std::string>()};
    } else {
      stops = j.get<std::vector<std::string>>();
    }
  });
  return stops;
}

// {"ID": DELTA}, as in the OpenAI API.
void read_logit_bias(const json& line, std::vector<LogitDelta>& bias) {
  const auto is_bias = [](const json& j) {
    return j.is_object() && std::all_of(j.begin(), j.end(), [](const json& delta) { return delta.is_number(); });
  };
  read_field(line, "logit_bias", "an object of numbers by token id", is_bias, [&](const json& j) {
    bias.clear();
    for (const auto& [name, delta] : j.items()) {
      int32_t id = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
      if (error != std::errc() || end != name.data() + name.size()) {
        refuse("\"logit_bias\" has ", json_line(json(name)), ", which is no token id");
      }
      bias.push_back({.id = id, .delta = delta.get<float>()});
    }
  });
}

}  // namespace

json line_id(const json& line, int64_t number) {
  const auto id = line.is_object() ? line.find("id") : line.end();
  return line.is_object() && id != line.end() && (id->is_string() || is_int(*id)) ? *id : json(number);
}

json parse_line(std::string_view text) {
  json line = parse_json(text, "the line", ErrorCode::kInvalidArgument);
  if (!line.is_object()) refuse("the line is not a JSON object");
  return line;
}

BatchRequest batch_request(const json& line, const GenerationFlags& defaults, const Tokenizer& tokenizer) {
  for (const auto& [name, value] : line.items()) {
    if (std::find(kFields.begin(), kFields.end(), name) == kFields.end()) {
      refuse("unknown field ", json_line(json(name)),
             ": fields are id, prompt or tokens, max_tokens, temperature, top_p, ",
             "top_k, min_p, seed, repetition_penalty, frequency_penalty, presence_penalty, logit_bias, min_tokens, ",
             "logprobs, stop, ignore_eos, n and exact");
    }
  }
  read_field(
      line, "id", "a string or an integer", [](const json& j) { return j.is_string() || is_int(j); },
      [](const json&) {});
  BatchRequest batch{.request = std::make_shared<Request>(), .stops = read_stops(line, defaults.stops)};
  Request& request = *batch.request;
  request.prompt = read_prompt(line, tokenizer);
  apply_generation_flags(defaults, request);
  read_int64(line, "max_tokens", request.max_tokens);
  read_int64(line, "min_tokens", request.min_tokens);
  read_number(line, "temperature", request.sampling.temperature);
  read_number(line, "top_p", request.sampling.top_p);
  read_int(line, "top_k", request.sampling.top_k);
  read_number(line, "min_p", request.sampling.min_p);
  read_field(
      line, "seed", "an integer from 0 on", [](const json& j) { return j.is_number_unsigned(); },
      [&](const json& j) { request.sampling.seed = j.get<uint64_t>(); });
  read_number(line, "repetition_penalty", request.repetition_penalty);
  read_number(line, "frequency_penalty", request.frequency_penalty);
  read_number(line, "presence_penalty", request.presence_penalty);
  read_logit_bias(line, request.logit_bias);
  read_int(line, "logprobs", request.logprobs);
  read_flag(line, "ignore_eos", request.ignore_eos);
  read_int(line, "n", request.choices);
  read_flag(line, "exact", request.exact);
  return batch;
}

ordered_json result_line(const json& id, int32_t choice, const std::string& text, const std::vector<int32_t>& tokens,
                         FinishReason reason, const Usage& usage) {
  return {{"id", id},
          {"index", choice},
          {"text", text},
          {"tokens", tokens},
          {"finish_reason", finish_reason_name(reason)},
          {"usage",
           {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
            {"cached_tokens", usage.cached_tokens},
            {"preemptions", usage.preemptions},
            {"replay", replay_json(usage)},
            {"speculation", speculation_json(usage)}}}};
}

ordered_json error_line(const json& id, int32_t choice, int64_t number, const std::string& message) {
  return {{"id", id}, {"index", choice}, {"error", {{"message", message}, {"line", number}}}};
}

BatchInput::BatchInput(const std::string& path, const std::string& flag)
    : name_(flag + " " + path), in_(path, std::ios::binary) {
  if (!in_ || fs::is_directory(path)) fail(ErrorCode::kNotFound, name_, ": cannot be read");
}

std::vector<BatchRequest> read_requests(const std::string& path, const std::string& flag,
                                        const GenerationFlags& defaults, const ModelFiles& files) {
  const Config& config = files.checkpoint.config();
  std::vector<BatchRequest> requests;
  BatchInput input(path, flag);
  for (std::string text; input.next(text);) {
    try {
      requests.push_back(batch_request(parse_line(text), defaults, files.tokenizer));
      Request& request = *requests.back().request;
      request.choices = 1;
      check_sampling(request, config.vocab_size);
      check_prompt(request.prompt, config, context_length(config, 0));
    } catch (const Error& error) {
      fail(error.code(), path, " line ", input.number(), ": ", error.what());
    }
  }
  if (requests.empty()) fail(ErrorCode::kInvalidArgument, path, " holds no prompt");
  return requests;
}

bool BatchInput::next(std::string& line) {
  while (std::getline(in_, line)) {
    ++number_;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) return true;
  }
  if (in_.bad()) fail(ErrorCode::kNotFound, name_, ": cannot be read after line ", number_);
  return false;
}

std::string BatchOutput::key(const json& id, int32_t choice) { return concat(choice, " ", json_line(id)); }

BatchOutput::BatchOutput(const std::string& path) : path_(path) {
  read_results();
  file_ = std::fopen(path.c_str(), "ab");
  if (file_ == nullptr) refuse("--output ", path, ": ", std::strerror(errno));
}

BatchOutput::~BatchOutput() {
  if (file_ != nullptr) std::fclose(file_);
}

// Reads what is there; if something of it does not stay, writes the rest beside it and puts that in its place.
void BatchOutput::read_results() {
  std::error_code ignored;
  if (!fs::exists(path_, ignored)) return;
  if (!fs::is_regular_file(path_, ignored)) refuse("--output ", path_, ": is not a regular file");
  std::ifstream in(path_, std::ios::binary);
  if (!in) refuse("--output ", path_, ": ", std::strerror(errno));
  const fs::path fresh = path_ + ".part";
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  bool dropped = false;
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    const bool whole = !in.eof();
    const json line = json::parse(text, nullptr, false);
    const bool result = line.is_object() && line.contains("id") && line.contains("index") && is_int32(line["index"]) &&
                        (line.contains("text") || line.contains("error"));
    if (!result && whole) {
      out.close();
      fs::remove(fresh, ignored);
      refuse("--output ", path_, ": line ", number, " is not a result of folio batch; choose another file");
    }
    if (!result || line.contains("error")) {
      dropped = true;
      continue;
    }
    dropped = dropped || !whole;
    kept_ += done_.insert(key(line["id"], line["index"].get<int32_t>())).second ? 1 : 0;
    out << text << '\n';
  }
  out.close();
  if (dropped && !out) refuse("--output ", path_, ": cannot write ", fresh.string());
  if (dropped) {
    fs::rename(fresh, path_);
  } else {
    fs::remove(fresh, ignored);
  }
}

void BatchOutput::write(const ordered_json& line) {
  const std::string text = json_line(line) + '\n';
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) {
    refuse("--output ", path_, ": cannot write: ", std::strerror(errno));
  }
  if (!line.contains("error")) done_.insert(key(line["id"], line["index"].get<int32_t>()));
}

}  // namespace folio
