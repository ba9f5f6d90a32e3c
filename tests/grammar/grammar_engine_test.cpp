// Structured output in a running engine: answers under a grammar are valid, the same in any company and at any depth,
// and the requests beside them do not notice.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine_core.h"
#include "protocol/grammar.h"
#include "support/small_model.h"

namespace folio {
namespace {

constexpr const char* kSchema =
    R"({"type":"object","properties":{"ok":{"type":"boolean"},"n":{"type":"integer","minimum":-5,
  "maximum":250},"tag":{"enum":["a","bc",null]},"list":{"type":"array","items":{"type":"null"},"maxItems":3},
  "code":{"type":"string","pattern":"^[a-z]{2}[0-9]$"}},"required":["ok","n","tag","list","code"],"additionalProperties":false})";
constexpr const char* kPattern = "(yes|no)( maybe)?";
constexpr int64_t kMaxTokens = 700;

const ModelFiles& files() {
  static const ModelFiles opened = ModelFiles::open(test::small_model("nano"));
  return opened;
}

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load(test::small_model("nano"));
  return loaded;
}

std::shared_ptr<const Grammar> grammar(GrammarSpec::Content content, const std::string& text) {
  static GrammarCompiler compiler(tokenizer(), files().checkpoint.config().eos_token_id);
  return compiler.compile({.content = content, .text = text});
}

struct Answer final : Sink {
  void on_token(int32_t, const TokenOutput& token) override {
    ids.push_back(token.id);
    logprobs.push_back(token.logprob);
  }
  void on_finish(int32_t, FinishReason why, const Usage&, const std::string&) override { reason = why; }

  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::kError;
};

// Requests by name: two free ones and some under grammars.
std::map<std::string, std::shared_ptr<Request>> requests() {
  std::map<std::string, std::shared_ptr<Request>> all;
  const auto add = [&](const std::string& name, uint64_t seed, std::shared_ptr<const Grammar> rules) {
    auto request = std::make_shared<Request>();
    for (int32_t i = 0; i < 20; ++i) request->prompt.push_back(static_cast<int32_t>(3 + (seed * 31 + i * 7) % 400));
    request->sampling.temperature = 1;
    request->sampling.seed = seed;
    request->max_tokens = rules == nullptr ? 40 : kMaxTokens;
    request->ignore_eos = rules == nullptr;
    if (rules != nullptr) request->policies.emplace_back(rules->make_policy());
    request->sink = std::make_shared<Answer>();
    all[name] = request;
  };
  add("free 1", 1, nullptr);
  add("free 2", 2, nullptr);
  for (uint64_t seed = 10; seed < 16; ++seed) {
    add("json " + std::to_string(seed), seed, grammar(GrammarSpec::Content::kJsonSchema, kSchema));
  }
  add("pattern", 20, grammar(GrammarSpec::Content::kRegex, kPattern));
  return all;
}

std::map<std::string, std::shared_ptr<Answer>> run(const std::map<std::string, std::shared_ptr<Request>>& all,
                                                   int32_t depth) {
  RunnerOptions options;
  options.max_model_len = 1024;
  options.max_num_seqs = 5;
  options.max_rows = 64;
  options.max_head_rows = 8;
  options.block_size = 32;
  options.pages = 160;
  options.threads = 1;
  EngineConfig config;
  config.max_num_seqs = 5;
  config.max_num_batched_tokens = 64;
  config.encoder_replay = false;
  config.state_checkpoint_interval = 32;
  config.depth = depth;
  ModelRunner runner(files(), options);
  EngineCore core(runner, config);
  std::map<std::string, std::shared_ptr<Answer>> answers;
  RequestId id = 0;
  for (const auto& [name, request] : all) {
    answers[name] = std::static_pointer_cast<Answer>(request->sink);
    core.submit(id++, request);
  }
  while (!core.empty()) core.step();
  return answers;
}

std::string text_of(const Answer& answer) { return tokenizer().decode(answer.ids, true); }

TEST(GrammarInEngine, AnswersAreValidAndNobodyNotices) {
  std::map<std::string, std::shared_ptr<Answer>> alone;
  for (const auto& [name, request] : requests()) alone.merge(run({{name, request}}, 1));
  for (const int32_t depth : {1, 2}) {
    for (const auto& [name, answer] : run(requests(), depth)) {
      EXPECT_EQ(answer->ids, alone[name]->ids) << name << " depth " << depth;
      EXPECT_EQ(answer->logprobs, alone[name]->logprobs) << name << " depth " << depth;
    }
  }
  for (const auto& [name, answer] : alone) {
    const std::string text = text_of(*answer);
    if (name.starts_with("free")) {
      EXPECT_EQ(answer->ids.size(), 40u);
      continue;
    }
    ASSERT_EQ(answer->reason, FinishReason::kStop) << name << ": " << text;
    const bool json = name.starts_with("json");
    EXPECT_TRUE(
        grammar(json ? GrammarSpec::Content::kJsonSchema : GrammarSpec::Content::kRegex, json ? kSchema : kPattern)
            ->accepts(text))
        << text;
    if (!json) continue;
    const auto value = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_EQ(value.size(), 5u) << text;
    EXPECT_TRUE(value["ok"].is_boolean() && value["n"].is_number_integer() && value["list"].size() <= 3) << text;
    EXPECT_TRUE(value["n"] >= -5 && value["n"] <= 250) << text;
    EXPECT_EQ(value["code"].get<std::string>().size(), 3u) << text;
  }
}

}  // namespace
}  // namespace folio
