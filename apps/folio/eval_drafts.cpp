// folio eval: how many tokens a verification of five drafts gives in greedy answers.
#include <cstdio>
#include <map>

#include "base/error.h"
#include "eval.h"

namespace folio {
namespace {

constexpr int64_t kAnswerTokens = 96;
constexpr int64_t kTextPrompts = 100, kTextPrompt = 128;  // prompts of held-out text, and their tokens

using Prompts = std::vector<std::vector<int32_t>>;

Prompts questions(const EvalContext& context, const std::vector<EvalQuestion>& all) {
  Prompts prompts;
  for (const EvalQuestion& question : all) prompts.push_back(question.prompt);
  prompts.resize(static_cast<size_t>(context.limited(std::ssize(prompts))));
  return prompts;
}

// Prompts at even distances.
Prompts text_prompts(const EvalContext& context, const EvalDomain& domain) {
  Prompts prompts;
  const int64_t room = std::ssize(domain.tokens) - kTextPrompt;
  const int64_t count = room > 0 ? context.limited(std::min(kTextPrompts, room)) : 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = domain.tokens.begin() + i * room / count;
    prompts.emplace_back(begin, begin + kTextPrompt);
  }
  return prompts;
}

// Each an engine of its own, so that its counts are those of these prompts alone.
nlohmann::ordered_json accepted(const EvalContext& context, const std::string& name, const Prompts& prompts) {
  std::vector<std::shared_ptr<Request>> requests;
  EvalEngineOptions options{.drafts = true};
  for (const std::vector<int32_t>& prompt : prompts) {
    requests.push_back(greedy_request(prompt, kAnswerTokens));
    options.longest = std::max(options.longest, std::ssize(prompt) + kAnswerTokens);
  }
  EvalEngine engine(context.files, context.runner, options);
  engine.run(requests, "drafts in answers to " + name);
  const SpeculationStats& stats = engine.speculation();
  std::printf("  %-17s %8zu  %13lld   %16.2f  ", name.c_str(), prompts.size(),
              static_cast<long long>(stats.verifications), stats.accepted_length());
  nlohmann::ordered_json rates = nlohmann::ordered_json::array();
  for (size_t i = 0; i < stats.drafted.size(); ++i) {
    rates.push_back(
        stats.drafted[i] > 0 ? static_cast<double>(stats.accepted[i]) / static_cast<double>(stats.drafted[i]) : 0.0);
    std::printf(" %4.0f", 100 * rates.back().get<double>());
  }
  std::printf("\n");
  std::fflush(stdout);
  return {{"domain", name},
          {"prompts", prompts.size()},
          {"verifications", stats.verifications},
          {"accepted_length", stats.accepted_length()},
          {"accepted_by_position", std::move(rates)}};
}

}  // namespace

nlohmann::ordered_json eval_drafts(const EvalContext& context) {
  std::printf("drafts                 prompts  verifications   tokens of each    draft 1 to 5 accepted, %%\n");
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::map<std::string, Prompts> kinds;
  Prompts chat;
  for (const EvalTurn& turn : context.suite.turns) {
    kinds[turn.kind].push_back(turn.prompt);
    chat.push_back(turn.prompt);
  }
  const auto measure = [&](const std::string& name, Prompts prompts) {
    prompts.resize(static_cast<size_t>(context.limited(std::ssize(prompts))));
    if (!prompts.empty()) json.push_back(accepted(context, name, prompts));
  };
  measure("held-out chat", chat);
  for (const auto& [kind, prompts] : kinds) measure("chat, " + kind, prompts);
  measure("definitions", questions(context, context.suite.recall));
  measure("tool calls", questions(context, context.suite.tool_calls));
  measure("JSON answers", questions(context, context.suite.objects));
  for (const char* name : {"entries", "stories"}) measure(name, text_prompts(context, context.suite.domain(name)));
  return json;
}

}  // namespace folio
