// folio eval: what greedy answers hold. Definitions against the gloss of the word, tool calls and JSON against what the
// prompt asks for.
#include <algorithm>
#include <cstdio>

#include "eval.h"
#include "protocol/answer_reader.h"

namespace folio {
namespace {

constexpr int64_t kDefinitionTokens = 96, kCallTokens = 160, kObjectTokens = 200;

struct Answered {
  std::vector<const EvalQuestion*> questions;
  std::vector<ParsedAnswer> answers;
};

Answered ask(const EvalContext& context, const std::vector<EvalQuestion>& all, int64_t max_tokens, bool calls,
             const std::string& what) {
  Answered asked;
  std::vector<std::shared_ptr<Request>> requests;
  int64_t longest = 0;
  for (const EvalQuestion& question : std::span(all).first(static_cast<size_t>(context.limited(std::ssize(all))))) {
    asked.questions.push_back(&question);
    requests.push_back(greedy_request(question.prompt, max_tokens));
    longest = std::max(longest, std::ssize(question.prompt) + max_tokens);
  }
  EvalEngine engine(context.files, context.runner, {.longest = longest});
  for (const KeptAnswer& answer : engine.run(requests, what)) {
    AnswerReader reader(context.files.tokenizer, {.calls = calls});
    std::vector<Delta> deltas;
    for (const TokenLogprob& token : answer.tokens) reader.push(token.id, deltas);
    const bool cut = std::ssize(answer.tokens) == max_tokens;
    reader.finish(cut ? AnswerEnd::kLength : AnswerEnd::kStop, deltas);
    asked.answers.emplace_back().add(deltas);
  }
  return asked;
}

// Prints a line and gives the share.
double share(const char* name, int64_t count, size_t all) {
  const double value = static_cast<double>(count) / static_cast<double>(all);
  std::printf("  %-52s %6.1f %%\n", name, 100 * value);
  std::fflush(stdout);
  return value;
}

// null for what is not JSON.
nlohmann::ordered_json parsed(const std::string& text) {
  nlohmann::ordered_json value = nlohmann::ordered_json::parse(text, nullptr, false);
  return value.is_discarded() ? nlohmann::ordered_json() : value;
}

std::vector<std::string> keys(const nlohmann::ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

}  // namespace

nlohmann::ordered_json eval_recall(const EvalContext& context) {
  const Answered asked = ask(context, context.suite.recall, kDefinitionTokens, false, "definitions");
  int64_t phrase = 0, gloss = 0;
  for (size_t i = 0; i < asked.answers.size(); ++i) {
    const nlohmann::json& expected = asked.questions[i]->expected;
    const auto holds = [&](const char* what) {
      return asked.answers[i].content.find(expected.at(what).get<std::string>()) != std::string::npos;
    };
    phrase += holds("phrase") ? 1 : 0;
    gloss += holds("gloss") ? 1 : 0;
  }
  const size_t all = asked.answers.size();
  std::printf("definitions           %zu common nouns\n", all);
  return {{"words", all},
          {"first_phrase", share("first phrase of the gloss", phrase, all)},
          {"whole_gloss", share("the whole gloss", gloss, all)}};
}

nlohmann::ordered_json eval_formats(const EvalContext& context) {
  const Answered called = ask(context, context.suite.tool_calls, kCallTokens, true, "tool calls");
  int64_t parses = 0, right = 0, exact = 0;
  for (size_t i = 0; i < called.answers.size(); ++i) {
    const ParsedAnswer& answer = called.answers[i];
    if (answer.calls.size() != 1 || !answer.calls[0].complete || !answer.content.empty()) continue;
    const nlohmann::json arguments = nlohmann::json::parse(answer.calls[0].arguments, nullptr, false);
    if (!arguments.is_object()) continue;
    ++parses;
    const nlohmann::json& expected = called.questions[i]->expected;
    if (expected.at("name") != answer.calls[0].name || keys(arguments) != keys(expected.at("arguments"))) continue;
    ++right;
    exact += arguments == expected.at("arguments") ? 1 : 0;
  }
  const size_t calls = called.answers.size();
  std::printf("tool calls            %zu held-out prompts\n", calls);
  nlohmann::ordered_json json = {{"tool_calls",
                                  {{"prompts", calls},
                                   {"parses", share("one call that parses and nothing else", parses, calls)},
                                   {"right", share("of the right tool with its parameters", right, calls)},
                                   {"exact", share("with the right values", exact, calls)}}}};

  const Answered written = ask(context, context.suite.objects, kObjectTokens, false, "JSON answers");
  int64_t valid = 0, with_keys = 0;
  for (size_t i = 0; i < written.answers.size(); ++i) {
    const nlohmann::ordered_json value = parsed(written.answers[i].content);
    valid += value.is_null() ? 0 : 1;
    with_keys += value.is_object() && written.questions[i]->expected.at("keys") == keys(value) ? 1 : 0;
  }
  const size_t objects = written.answers.size();
  std::printf("JSON answers          %zu held-out prompts\n", objects);
  json["json"] = {{"prompts", objects},
                  {"parses", share("that parse", valid, objects)},
                  {"right_keys", share("with the keys of the schema, in order", with_keys, objects)}};
  return json;
}

}  // namespace folio
