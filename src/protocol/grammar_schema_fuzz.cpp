// A hostile schema: compiled or refused, and what is compiled gives masks with a way on, and answers that are JSON.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/rng.h"
#include "protocol/grammar_test_util.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const folio::Tokenizer tokenizer = folio::grammar_tokenizer();
  const std::string text(reinterpret_cast<const char*>(data), size);
  folio::GrammarCompiler compiler(tokenizer, folio::kTestEos);
  try {
    const auto grammar = compiler.compile({.content = folio::GrammarSpec::Content::kJsonSchema, .text = text});
    folio::AnswerSampler sampler(tokenizer, folio::random_bits(1, 2, size));
    const auto ids = sampler.draw(*grammar->make_policy(), 200);
    // Not ended: too long, but never stuck.
    require(sampler.ended || ids.size() == 200);
    if (!sampler.ended) return 0;
    const std::string answer = sampler.text(ids);
    require(grammar->accepts(answer));
    require(nlohmann::json::accept(answer));
  } catch (const folio::Error& error) {
    require(error.code() == folio::ErrorCode::kInvalidArgument);
  }
  try {
    compiler.compile({.tools = {{"f", text}}});
  } catch (const folio::Error& error) {
    require(error.code() == folio::ErrorCode::kInvalidArgument);
  }
  return 0;
}
