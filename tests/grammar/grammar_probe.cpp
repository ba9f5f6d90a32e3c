// For compare_validators.py: each line of standard input is {"schema": TEXT} or {"regex": TEXT} with "texts": [...] to
// judge and a number "samples" of answers to draw under the masks; each line of output {"error": TEXT} or {"verdicts":
// [...], "samples": [...]}, of which answers that did not end are left out.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "protocol/grammar_test_util.h"

namespace folio {
namespace {

nlohmann::json judge(GrammarCompiler& compiler, const Tokenizer& tokenizer, const nlohmann::json& line) {
  const bool regex = line.contains("regex");
  const auto content = regex ? GrammarSpec::Content::kRegex : GrammarSpec::Content::kJsonSchema;
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar = compiler.compile({.content = content, .text = line.at(regex ? "regex" : "schema")});
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
  nlohmann::json verdicts = nlohmann::json::array(), samples = nlohmann::json::array();
  for (const std::string text : line.at("texts")) verdicts.push_back(grammar->accepts(text));
  for (uint64_t seed = 0; seed < line.at("samples"); ++seed) {
    AnswerSampler sampler(tokenizer, seed);
    const std::string text = sampler.text(sampler.draw(*grammar->make_policy(), 1000));
    if (sampler.ended) samples.push_back(text);
  }
  return {{"verdicts", verdicts}, {"samples", samples}};
}

}  // namespace
}  // namespace folio

int main() {
  const folio::Tokenizer tokenizer = folio::grammar_tokenizer();
  folio::GrammarCompiler compiler(tokenizer, folio::kTestEos);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << folio::judge(compiler, tokenizer, nlohmann::json::parse(line)).dump() << std::endl;
  }
}
