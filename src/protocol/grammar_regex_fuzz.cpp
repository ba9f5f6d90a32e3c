// A hostile pattern: compiled or refused, and what is drawn under its masks matches.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/rng.h"
#include "protocol/grammar_regex.h"
#include "protocol/grammar_test_util.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const folio::Tokenizer tokenizer = folio::grammar_tokenizer();
  const std::string pattern(reinterpret_cast<const char*>(data), size);
  try {
    static_cast<void>(folio::compile_regex(pattern, folio::RegexMatch::kAnywhere));
  } catch (const folio::Error& error) {
    require(error.code() == folio::ErrorCode::kInvalidArgument);
  }
  try {
    const folio::CharAutomaton automaton = folio::compile_regex(pattern, folio::RegexMatch::kWhole);
    folio::GrammarCompiler compiler(tokenizer, folio::kTestEos);
    const auto grammar = compiler.compile({.content = folio::GrammarSpec::Content::kRegex, .text = pattern});
    folio::AnswerSampler sampler(tokenizer, folio::random_bits(1, 2, size));
    const auto ids = sampler.draw(*grammar->make_policy(), 60);
    require(sampler.ended || ids.size() == 60);
    if (sampler.ended) require(automaton.accepts(sampler.text(ids)));
  } catch (const folio::Error& error) {
    require(error.code() == folio::ErrorCode::kInvalidArgument);
  }
  return 0;
}
