#include "protocol/grammar_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "protocol/chat_policy.h"
#include "protocol/grammar_cases_test.h"
#include "protocol/grammar_json.h"
#include "protocol/grammar_regex.h"
#include "protocol/grammar_test_util.h"

namespace folio {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = grammar_tokenizer();
  return kTokenizer;
}

const GrammarVocabulary& vocabulary() {
  static const GrammarVocabulary kVocabulary(tokenizer(), kTestEos);
  return kVocabulary;
}

RuleNetwork schema_network(const std::string& schema) {
  NetworkBuilder builder;
  SchemaWriter writer(builder, JsonContext::kAlone);
  const SchemaDocument document(schema);
  const uint32_t to = builder.add_state();
  builder.set_final(to);
  writer.add_value(document, document.root(), builder.start_of(builder.root()), to);
  writer.finish();
  return builder.build();
}

RuleNetwork regex_network(const std::string& pattern) {
  NetworkBuilder builder;
  TextWriter writer(builder);
  const uint32_t from = builder.start_of(builder.root());
  for (const uint32_t end : writer.write(compile_regex(pattern, RegexMatch::kWhole), from, TextForm::kRaw)) {
    builder.set_final(end);
  }
  return builder.build();
}

// The mask by trying every token, symbol by symbol.
std::vector<uint64_t> brute_force_mask(LazyAutomaton& automaton, uint32_t state) {
  std::vector<uint64_t> bits(vocabulary().words(), 0);
  for (int32_t id = 0; id < vocabulary().size(); ++id) {
    const auto symbols = vocabulary().symbols(id);
    uint32_t to = symbols.empty() ? LazyAutomaton::kDead : state;
    for (const uint16_t symbol : symbols) to = automaton.next(to, symbol);
    if (to != LazyAutomaton::kDead || (id == kTestEos && automaton.accepting(state))) {
      bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    }
  }
  return bits;
}

// Along random answers: every mask is what trying every token gives.
void check_masks(const RuleNetwork& network, const std::string& name) {
  MaskedAutomaton masked(vocabulary(), network, 256);
  LazyAutomaton plain(network, 256);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    uint32_t state = masked.start(), oracle = plain.start();
    for (uint64_t i = 0; i < 60; ++i) {
      std::vector<uint64_t> bits(vocabulary().words(), ~uint64_t{0});
      masked.mask(state, bits);
      ASSERT_EQ(bits, brute_force_mask(plain, oracle)) << name << " seed " << seed << " token " << i;
      const auto choices = allowed_ids(bits, vocabulary().size());
      ASSERT_FALSE(choices.empty()) << name;
      const int32_t id = choices[random_bits(seed, 7, i) % choices.size()];
      if (id == kTestEos) break;
      state = masked.next(state, id).state;
      for (const uint16_t symbol : vocabulary().symbols(id)) oracle = plain.next(oracle, symbol);
      if (!plain.open(oracle)) break;
    }
  }
}

TEST(GrammarMasks, AreWhatTryingEveryTokenGives) {
  for (const GrammarCase& c : grammar_cases()) check_masks(schema_network(c.schema), c.name);
  for (const char* pattern :
       {"[^<]*x", "(?:[\\s\\S])*", ".{0,9}", "(a|b)*abb", "\u4e16+|\u00e9{2,5}", "[\\u0800-\\uffff]*"}) {
    check_masks(regex_network(pattern), pattern);
  }
}

TEST(GrammarMasks, OnlyClearBits) {
  const RuleNetwork network = schema_network(R"({"type":"string"})");
  MaskedAutomaton masked(vocabulary(), network, 256);
  const uint32_t inside = masked.next(masked.start(), 3 + '"').state;
  std::vector<uint64_t> all(vocabulary().words(), ~uint64_t{0}), some(vocabulary().words(), 0x5555555555555555);
  masked.mask(inside, all);
  masked.mask(inside, some);
  for (size_t w = 0; w < all.size(); ++w) EXPECT_EQ(some[w], all[w] & 0x5555555555555555);
  // A row for a vocabulary that the model pads.
  std::vector<uint64_t> wide(vocabulary().words() + 3, ~uint64_t{0});
  masked.mask(inside, wide);
  EXPECT_EQ(std::vector(wide.begin(), wide.end() - 3), all);
  EXPECT_EQ(wide.back(), 0u);
}

TEST(GrammarMasks, DoNotDependOnWhatWasAskedBefore) {
  const RuleNetwork network = schema_network(R"({"type":"array","items":{"type":["string","number"]}})");
  LazyAutomaton plain(network, 256);
  const std::string text = R"(["ab\n", 12.5, "\u00e9)";
  MaskedAutomaton forward(vocabulary(), network, 256);
  std::vector<uint32_t> states = {forward.start()};
  for (const char c : text) states.push_back(forward.next(states.back(), 3 + static_cast<unsigned char>(c)).state);
  for (size_t i = states.size(); i-- > 0;) {
    std::vector<uint64_t> bits(vocabulary().words(), ~uint64_t{0});
    forward.mask(states[i], bits);
    EXPECT_EQ(bits, brute_force_mask(plain, plain.next(plain.start(), std::string_view(text).substr(0, i)))) << i;
  }
}

// A regex whose deterministic automaton has more than 2^20 states.
TEST(GrammarMasks, ExponentialPatternsStayInBounds) {
  const RuleNetwork network = regex_network("[a-z]*a[a-z]{0,20}[a-z]{300}(b|c[a-z]{40})*");
  MaskedAutomaton masked(vocabulary(), network, 256);
  LazyAutomaton plain(network, 256);
  uint32_t state = masked.start();
  for (uint64_t i = 0; i < 200; ++i) {
    std::vector<uint64_t> bits(vocabulary().words(), ~uint64_t{0});
    masked.mask(state, bits);
    EXPECT_TRUE(allows(bits, 3 + 'a'));
    const int32_t id = 3 + static_cast<int32_t>('a' + random_bits(1, 2, i) % 26);
    state = masked.next(state, id).state;
    ASSERT_NE(state, MaskedAutomaton::kDead);
  }
}

TEST(GrammarPolicies, RollBackToWhereTheyWere) {
  GrammarCompiler compiler(tokenizer(), kTestEos);
  for (const GrammarCase& c : grammar_cases()) {
    const auto grammar = compiler.compile({.content = GrammarSpec::Content::kJsonSchema, .text = c.schema});
    AnswerSampler sampler(tokenizer(), 3);
    const auto first = grammar->make_policy();
    const std::vector<int32_t> ids = sampler.draw(*first);
    const auto policy = grammar->make_policy(), replayed = grammar->make_policy();
    for (size_t i = 0; i < ids.size(); ++i) {
      // Some tokens ahead and back, as a speculating engine does.
      const size_t ahead = std::min<size_t>(random_bits(5, 1, i) % 4, ids.size() - i);
      for (size_t j = 0; j < ahead; ++j) policy->accept(ids[i + j]);
      policy->rollback(static_cast<int32_t>(ahead));
      ASSERT_EQ(mask_of(*policy, vocabulary().size()), mask_of(*replayed, vocabulary().size())) << c.name;
      ASSERT_EQ(policy->accept(ids[i]), replayed->accept(ids[i])) << c.name;
    }
    policy->rollback(static_cast<int32_t>(ids.size()));
    EXPECT_EQ(mask_of(*policy, vocabulary().size()), mask_of(*grammar->make_policy(), vocabulary().size())) << c.name;
  }
}

TEST(GrammarPolicies, EndWhereTheTextIsComplete) {
  GrammarCompiler compiler(tokenizer(), kTestEos);
  const auto accept = [](TokenPolicy& policy, std::string_view text) {
    PolicyVerdict verdict = PolicyVerdict::kContinue;
    for (const char c : text) {
      EXPECT_EQ(verdict, PolicyVerdict::kContinue);
      verdict = policy.accept(3 + static_cast<unsigned char>(c));
    }
    return verdict;
  };
  const auto may_end = [](TokenPolicy& policy) { return allows(mask_of(policy, vocabulary().size()), kTestEos); };
  const auto object = compiler.compile({.content = GrammarSpec::Content::kJsonObject});
  const auto policy = object->make_policy();
  EXPECT_FALSE(may_end(*policy));
  EXPECT_EQ(accept(*policy, R"({"a":1)"), PolicyVerdict::kContinue);
  EXPECT_FALSE(may_end(*policy));
  EXPECT_EQ(accept(*policy, "}"), PolicyVerdict::kStop);
  policy->rollback(1);
  EXPECT_EQ(accept(*policy, "2}"), PolicyVerdict::kStop);

  // Digits may go on, so the end is the model's to choose.
  const auto digits = compiler.compile({.content = GrammarSpec::Content::kRegex, .text = "[0-9]+"})->make_policy();
  EXPECT_FALSE(may_end(*digits));
  EXPECT_EQ(accept(*digits, "1"), PolicyVerdict::kContinue);
  EXPECT_TRUE(may_end(*digits));
  EXPECT_EQ(digits->accept(kTestEos), PolicyVerdict::kStop);
  digits->rollback(1);
  EXPECT_EQ(accept(*digits, "2"), PolicyVerdict::kContinue);
  // What may not come ends the answer rather than spoil it; only the end of sentence is left then.
  EXPECT_EQ(accept(*digits, "x"), PolicyVerdict::kStop);
  EXPECT_EQ(allowed_ids(mask_of(*digits, vocabulary().size()), vocabulary().size()), std::vector<int32_t>{kTestEos});
}

TEST(GrammarPolicies, TakeNoAddedTokens) {
  GrammarCompiler compiler(tokenizer(), kTestEos);
  const auto grammar = compiler.compile({.content = GrammarSpec::Content::kJsonSchema, .text = R"({"type":"string"})"});
  const auto policy = grammar->make_policy();
  policy->accept(3 + '"');
  const auto bits = mask_of(*policy, vocabulary().size());
  for (const char* text :
       {"<\uFF5CUser\uFF5C>", "<think>", "</think>", "\uFF5CDSML\uFF5C", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"}) {
    EXPECT_FALSE(allows(bits, tokenizer().find_added(text).value())) << text;
  }
  EXPECT_TRUE(allows(bits, 3 + '<'));
}

// Together with what reads the answer: nothing is masked but the ways out of the reasoning, then the grammar rules, and
// going back over the border leaves it.
TEST(GrammarPolicies, WaitForTheEndOfTheReasoning) {
  GrammarCompiler compiler(tokenizer(), kTestEos);
  const auto grammar = compiler.compile({.content = GrammarSpec::Content::kJsonObject});
  const int32_t end_think = tokenizer().find_added("</think>").value();
  const auto make = [&] {
    ChatPolicyOptions options;
    options.parser.start = AnswerStart::kReasoning;
    options.parser.stops = {"stop"};
    options.grammar = grammar->make_policy();
    return std::make_unique<ChatPolicy>(tokenizer(), std::move(options));
  };
  const auto policy = make();
  const auto type = [&](std::string_view text) {
    PolicyVerdict verdict = PolicyVerdict::kContinue;
    for (const char c : text) verdict = policy->accept(3 + static_cast<unsigned char>(c));
    return verdict;
  };
  const auto now = [&](int32_t id) { return allows(mask_of(*policy, vocabulary().size()), id); };
  EXPECT_TRUE(now(3 + 'x'));
  EXPECT_FALSE(now(kTestEos));
  EXPECT_EQ(type("stop? {]"), PolicyVerdict::kContinue);
  EXPECT_TRUE(now(3 + 'x'));
  EXPECT_TRUE(now(end_think));
  policy->accept(end_think);
  EXPECT_FALSE(now(3 + 'x'));
  EXPECT_FALSE(now(end_think));
  EXPECT_TRUE(now(3 + '{'));
  type("{\"a");
  policy->rollback(5);  // into the reasoning
  EXPECT_TRUE(now(3 + 'x'));
  type("x");
  policy->accept(end_think);
  EXPECT_EQ(type("{\"a\":1"), PolicyVerdict::kContinue);
  EXPECT_EQ(type("}"), PolicyVerdict::kStop);
  policy->rollback(1);
  EXPECT_EQ(type(",\"b\":\"sto"), PolicyVerdict::kContinue);
  EXPECT_EQ(type("p"), PolicyVerdict::kStop);  // the stop string of the request
}

TEST(GrammarPolicies, ShareAGrammarBetweenThreads) {
  GrammarCompiler compiler(tokenizer(), kTestEos);
  const auto grammar = compiler.compile({.content = GrammarSpec::Content::kJsonObject});
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      AnswerSampler sampler(tokenizer(), 11);
      texts[i] = sampler.text(sampler.draw(*grammar->make_policy()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

TEST(GrammarVocabularies, KnowPlainText) {
  const auto json = [](std::string_view token) { return plain_length(token, PlainText::kJson); };
  const auto raw = [](std::string_view token) { return plain_length(token, PlainText::kRaw); };
  EXPECT_EQ(json("abc"), 3);
  EXPECT_EQ(json("a\u4e16"), 2);
  EXPECT_EQ(json("a\xe4\xb8"), 2);
  for (const char* odd : {"\"", "a\\", "\n", "\x80", "\xff", "a\xef", "\xef\xbd", "\uFF5C"})
    EXPECT_EQ(json(odd), std::nullopt) << odd;
  EXPECT_EQ(raw("\"\n\\"), 3);
  for (const char* odd : {"<", "a<b", "\uFF5C", "\xef", "\x80"}) EXPECT_EQ(raw(odd), std::nullopt) << odd;
  // A byte whose token means something else leaves answers without a way on.
  EXPECT_NE(error_message(ErrorCode::kUnsupported, [] { GrammarVocabulary(tokenizer(), 3 + '{'); }), "");
}

// Masks of the published vocabulary along answers that a server would give. Printed; the bound is the issue's.
TEST(GrammarMasks, TakeMicrosecondsOnThePublishedVocabulary) {
  const auto path = published_tokenizer();
  if (!path) GTEST_SKIP() << "the published tokenizer is not here (tools/fetch_tokenizer.py)";
  const Tokenizer published = Tokenizer::load(*path);
  using Clock = std::chrono::steady_clock;
  const auto micros = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
  const auto begin = Clock::now();
  GrammarCompiler compiler(published, 1);
  std::cout << "vocabulary read in " << micros(Clock::now() - begin) / 1000 << " ms\n";
  struct Bench {
    const char *name, *schema, *answer;
  };
  const std::vector<Bench> benches = {
      {"object",
       R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"type":"array",
        "items":{"type":"string"}},"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}},
        "required":["street","city"]}},"required":["name","age","tags","address"],"additionalProperties":false})",
       R"({"name": "Ada Lovelace, the \"first\" programmer", "age": 36, "tags": ["mathematics", "poetry of numbers", "\u00e9t\u00e9"], "address": {"street": "12 St James's Square", "city": "London"}})"},
      {"bounded strings",
       R"({"type":"object","properties":{"title":{"type":"string","maxLength":40},"code":{"type":"string",
        "pattern":"^[A-Z]{2}-[0-9]{4}$"},"when":{"type":"string","format":"date-time"}},"required":["title","code","when"]})",
       R"({"title": "A short title of a longer text", "code": "AB-1234", "when": "2026-11-29T18:00:00Z"})"},
      {"any object", nullptr,
       "{\n  \"items\": [\n    {\n      \"id\": 1,\n      \"text\": \"The quick brown fox jumps over the lazy dog.\"\n "
       "   },\n    {\n      \"id\": 2,\n      \"ok\": true\n    }\n  ]\n}"}};
  std::vector<double> all;
  for (const Bench& bench : benches) {
    GrammarSpec spec{.content = GrammarSpec::Content::kJsonObject};
    if (bench.schema != nullptr) spec = {.content = GrammarSpec::Content::kJsonSchema, .text = bench.schema};
    const auto compiling = Clock::now();
    const auto grammar = compiler.compile(spec);
    const double compiled = micros(Clock::now() - compiling);
    const std::vector<int32_t> ids = published.encode(bench.answer, Special::kAsText);
    for (const char* run : {"first", "later"}) {
      const auto policy = grammar->make_policy();
      std::vector<double> times;
      for (const int32_t id : ids) {
        std::vector<uint64_t> bits((static_cast<size_t>(published.vocab_size()) + 63) / 64, ~uint64_t{0});
        const auto start = Clock::now();
        policy->mask(bits);
        times.push_back(micros(Clock::now() - start));
        ASSERT_TRUE(allows(bits, id)) << bench.name << ": " << published.bytes(id);
        policy->accept(id);
      }
      std::ranges::sort(times);
      all.insert(all.end(), times.begin(), times.end());
      std::cout << bench.name << ", " << run << " answer of " << ids.size() << " tokens: median "
                << times[times.size() / 2] << " us, p90 " << times[times.size() * 9 / 10] << " us, most "
                << times.back() << " us; compiled in " << compiled << " us\n";
    }
  }
  std::ranges::sort(all);
  std::cout << "median of all " << all[all.size() / 2] << " us\n";
#ifdef NDEBUG
  EXPECT_LE(all[all.size() / 2], 100);
#endif
}

}  // namespace
}  // namespace folio
