#include "server/completion_answer.h"

#include <algorithm>

#include "base/error.h"
#include "server/event_stream.h"
#include "server/usage_json.h"

namespace folio {

CompletionAnswer::CompletionAnswer(const Tokenizer& tokenizer, CompletionOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  head_ = concat("{\"id\":", json_quote(options_.id), ",\"object\":\"text_completion\",\"created\":", unix_seconds(),
                 ",\"model\":", json_quote(options_.model));
  const size_t prompts = options_.prompts.size();
  prompt_news_.resize(prompts);
  for (size_t i = 0; i < prompts * static_cast<size_t>(options_.choices); ++i)
    choices_.emplace_back(tokenizer_, options_);
}

ReplyJson CompletionAnswer::Logprobs::json() const {
  return {{"text_offset", text_offset},
          {"token_logprobs", token_logprobs},
          {"tokens", tokens},
          {"top_logprobs", top_logprobs}};
}

// The end of sentence, unless it is ignored, and stop ids end an answer and are no part of its text.
bool CompletionAnswer::ends(int32_t id) const {
  if (id == options_.eos && !options_.ignore_eos) return true;
  return std::find(options_.stop_ids.begin(), options_.stop_ids.end(), id) != options_.stop_ids.end();
}

void CompletionAnswer::on_prompt(int32_t prompt, const std::vector<TokenNews>& tokens) {
  prompt_news_[static_cast<size_t>(prompt)] = tokens;
}

// Puts the prompt's text, and its log-probabilities if they are wanted, in front of a choice; once.
void CompletionAnswer::echo_prompt(int32_t index, Choice& choice) const {
  if (!options_.echo || std::exchange(choice.echoed, true)) return;
  const auto prompt = static_cast<size_t>(prompt_of(index));
  const std::vector<int32_t>& ids = options_.prompts[prompt];
  Detokenizer detokenizer(tokenizer_, options_.skip_special || options_.raw_text[prompt]);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (options_.logprobs && i == 0) {
      choice.logprobs.text_offset.push_back(0);
      choice.logprobs.token_logprobs.push_back(nullptr);
      choice.logprobs.tokens.push_back(completion_token(tokenizer_, ids[0], options_.ids_as_tokens));
      choice.logprobs.top_logprobs.push_back(nullptr);
    } else if (options_.logprobs && i <= prompt_news_[prompt].size()) {
      add_logprob(choice, prompt_news_[prompt][i - 1], *options_.logprobs);
    }
    const std::string text = detokenizer.push(ids[i]);
    choice.characters += count_characters(text);
    choice.text += text;
  }
  choice.text += detokenizer.flush();
}

// The token's alternatives and, whether it is one of them or not, the token itself with the same number.
void CompletionAnswer::add_logprob(Choice& choice, const TokenNews& token, int32_t alternatives) const {
  ReplyJson top = ReplyJson::object();
  const size_t count = std::min(token.top.size(), static_cast<size_t>(alternatives));
  for (size_t i = 0; i < count && token.top[i].id >= 0; ++i) {
    const std::string text = completion_token(tokenizer_, token.top[i].id, options_.ids_as_tokens);
    if (!top.contains(text)) top[text] = printed_logprob(token.top[i].logprob);
  }
  const std::string text = completion_token(tokenizer_, token.id, options_.ids_as_tokens);
  top[text] = printed_logprob(token.logprob);
  choice.logprobs.text_offset.push_back(choice.characters);
  choice.logprobs.token_logprobs.push_back(printed_logprob(token.logprob));
  choice.logprobs.tokens.push_back(text);
  choice.logprobs.top_logprobs.push_back(std::move(top));
}

void CompletionAnswer::on_token(int32_t index, const TokenNews& token, std::string& out) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (options_.drop_tokens) return;
  echo_prompt(index, choice);
  if (options_.stream && !choice.text.empty()) send(index, out);  // the prompt is a part of its own
  ++choice.tokens;
  if (options_.logprobs) add_logprob(choice, token, *options_.logprobs);
  if (options_.return_ids) choice.ids.push_back(token.id);
  if (ends(token.id)) {
    if (token.id != options_.eos) choice.stop_reason = token.id;
    if (!options_.include_stop) return;
  }
  const std::string text = choice.detokenizer.push(token.id);
  choice.characters += count_characters(text);
  choice.text += choice.stops.push(text);
  if (options_.stream && !choice.text.empty()) send(index, out);
}

void CompletionAnswer::on_finish(int32_t index, FinishReason reason, const Usage& usage, std::string& out) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  echo_prompt(index, choice);
  choice.text += choice.stops.push(choice.detokenizer.flush());
  choice.text += choice.stops.flush();
  choice.reason = options_.drop_tokens              ? "length"
                  : reason == FinishReason::kStop   ? "stop"
                  : reason == FinishReason::kLength ? "length"
                                                    : "abort";
  if (choice.stops.stopped()) {
    choice.stop_reason = choice.stops.matched();
    if (options_.include_stop) choice.text += choice.stops.matched();
  }
  Usage counted = usage;
  if (options_.drop_tokens) counted.completion_tokens = 0;
  usage_.add(counted, index % options_.choices == 0);
  if (options_.stream) send(index, out);
}

// A choice with what it has that is not sent yet. Written by hand: this is what every token costs.
void CompletionAnswer::append_choice(int32_t index, std::string& out) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  out.append("{\"index\":").append(std::to_string(index)).append(",\"text\":");
  append_quoted(choice.text, out);
  out.append(",\"logprobs\":").append(options_.logprobs ? dump(choice.logprobs.json()) : "null");
  out += ",\"finish_reason\":";
  if (choice.reason.empty()) {
    out += "null";
  } else {
    append_quoted(choice.reason, out);
  }
  out += ",\"stop_reason\":";
  out += choice.stop_reason.is_null() ? "null" : dump(choice.stop_reason);
  const auto prompt = static_cast<size_t>(prompt_of(index));
  if (!options_.stream) {
    out += ",\"prompt_logprobs\":";
    out += options_.prompt_logprobs ? dump(prompt_logprobs(tokenizer_, prompt_news_[prompt], *options_.prompt_logprobs))
                                    : "null";
  }
  if (options_.return_ids) {
    out += ",\"token_ids\":" + dump(std::exchange(choice.ids, ReplyJson::array()));
    if (!options_.stream) out += ",\"prompt_token_ids\":" + dump(options_.prompts[prompt]);
  }
  out += "}";
  choice.text.clear();
  if (options_.logprobs) choice.logprobs = {};
}

void CompletionAnswer::append_usage(std::string& out) const {
  if (options_.continuous_usage) {
    TotalUsage running = usage_;
    running.completion_tokens = 0;
    for (const Choice& choice : choices_) running.completion_tokens += choice.tokens;
    running.prompt_tokens = 0;
    for (const auto& prompt : options_.prompts) running.prompt_tokens += std::ssize(prompt);
    out += ",\"usage\":" + dump(openai_usage(running));
  } else if (options_.include_usage) {
    out += ",\"usage\":null";
  }
}

void CompletionAnswer::send(int32_t index, std::string& out) {
  begin_event(out);
  out.append(head_).append(",\"choices\":[");
  append_choice(index, out);
  out += "]";
  append_usage(out);
  out += "}";
  end_event(out);
}

void CompletionAnswer::end(std::string& out) {
  if (options_.include_usage)
    append_event(head_ + ",\"choices\":[],\"usage\":" + dump(openai_usage(usage_)) + "}", out);
  out += kDoneEvent;
}

std::string CompletionAnswer::body() {
  std::string reply = head_ + ",\"choices\":[";
  for (int32_t i = 0; i < std::ssize(choices_); ++i) {
    if (i > 0) reply += ",";
    append_choice(i, reply);
  }
  return reply + "],\"usage\":" + dump(openai_usage(usage_)) + "}";
}

void CompletionAnswer::fail(const ApiError& error, std::string& out) {
  append_event(error_body(error, ApiStyle::kOpenAi), out);
  out += kDoneEvent;
}

}  // namespace folio
