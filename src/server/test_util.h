// Helpers of this room's tests.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "server/answer.h"
#include "server/reply_json.h"
#include "server/routes.h"
#include "tokenizer/tokenizer_test_util.h"

namespace folio {

// A model whose tokenizer has the bytes and the added tokens of chats.
class TestModel {
 public:
  TestModel()
      : tokenizer_(Tokenizer::parse(
            small_tokenizer({}, {"<\uFF5CSystem\uFF5C>", "<\uFF5CUser\uFF5C>", "<\uFF5CAssistant\uFF5C>", "<think>",
                                 "</think>", "\uFF5CDSML\uFF5C", "<\uFF5Cfim\u2581hole\uFF5C>",
                                 "<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>"})
                .dump(),
            "test")) {
    model_.names = {"m", "alias"};
    model_.tokenizer = &tokenizer_;
    model_.vocab_size = tokenizer_.vocab_size();
    model_.max_model_len = 8192;
  }
  TestModel(const TestModel&) = delete;
  TestModel& operator=(const TestModel&) = delete;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  ServedModel& model() { return model_; }
  ApiContext context() { return {.model = model_, .grammars = grammars_, .responses = responses_, .request_id = ""}; }

 private:
  Tokenizer tokenizer_;
  GrammarCompiler grammars_{tokenizer_, 1};
  ServedModel model_;
  ResponseStore responses_{100, size_t{1} << 20};
};

// Event name ("" for none) and data of each event of a stream.
inline std::vector<std::pair<std::string, std::string>> split_events(const std::string& stream) {
  std::vector<std::pair<std::string, std::string>> events;
  std::istringstream lines(stream);
  std::string name, data;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (line.starts_with("data: ")) data = line.substr(6);
    if (line.empty() && !data.empty()) events.emplace_back(std::exchange(name, ""), std::exchange(data, ""));
  }
  return events;
}

// Gives an answer the tokens of `text` and ends it; the bytes of the stream.
inline std::string run_answer(Answer& answer, const Tokenizer& tokenizer, const std::string& text, FinishReason reason,
                              const Usage& usage, bool stream) {
  std::string out;
  if (stream) answer.begin(out);
  for (const int32_t id : tokenizer.encode(text)) answer.on_token(0, {.id = id, .logprob = -1, .top = {}}, out);
  answer.on_finish(0, reason, usage, out);
  if (stream) answer.end(out);
  return out;
}

}  // namespace folio
