// Ratio acceptance in a running engine (engine/speculation.h): answers have the distribution of the model, greedy ones
// its very tokens, and none depends on the company.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/calibration_profile.h"
#include "engine/engine_probe.h"
#include "engine/fuzz_case.h"
#include "ops/sample_test_util.h"
#include "support/sanitized.h"
#include "support/small_model.h"

namespace folio {
namespace {

const ModelFiles& nano() {
  static const ModelFiles files = ModelFiles::open(test::small_model("nano"));
  return files;
}

class Speculating {
 public:
  explicit Speculating(Acceptance acceptance, int32_t drafts = 5, int32_t max_rows = 500) {
    runner_.max_model_len = 256;
    runner_.max_num_seqs = engine_.max_num_seqs = 32;
    runner_.max_rows = engine_.max_num_batched_tokens = max_rows;
    runner_.max_head_rows = max_rows;
    runner_.num_speculative_tokens = engine_.num_speculative_tokens = drafts;
    engine_.acceptance = acceptance;
    probe_ = std::make_unique<EngineProbe>(nano(), runner_, engine_);
  }
  EngineProbe* operator->() { return probe_.get(); }
  const SpeculationStats& stats() { return probe_->core().scheduler().stats().speculation; }

 private:
  RunnerOptions runner_;
  EngineConfig engine_;
  std::unique_ptr<EngineProbe> probe_;
};

Request request(uint64_t number, int64_t length, int64_t max_tokens) {
  Request request;
  for (int64_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<int32_t>(3 + random_bits(number, 0, static_cast<uint64_t>(i)) % 500));
  }
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.sampling = {.temperature = 1, .seed = number};
  return request;
}

// Three tokens of three most likely ids each, drawn often: their joint distribution.
constexpr int32_t kChoices = 3;
constexpr int64_t kTokens = 3;

Request narrow_request() {
  Request narrow = request(1, 10, 5);  // within a window: nothing is replayed
  narrow.sampling.temperature = 2;
  narrow.sampling.top_k = kChoices;
  return narrow;
}

// p of every sequence, from the log-probabilities that plain runs report.
void add_sequences(const Request& narrow, std::vector<int32_t> said, double p,
                   std::map<std::vector<int32_t>, double>& law) {
  if (std::ssize(said) == kTokens) {
    law[said] = p;
    return;
  }
  Request next = narrow;
  next.prompt.insert(next.prompt.end(), said.begin(), said.end());
  next.max_tokens = 1;
  next.logprobs = kChoices;
  Speculating plain(Acceptance::kMatch, 0);
  const RequestId id = plain->submit(next);
  plain->drain();
  const std::vector<TopLogprob>& top = plain->answer(id).top;
  double total = 0;
  const auto weight = [&](const TopLogprob& t) {
    return std::exp(static_cast<double>(t.logprob) / static_cast<double>(narrow.sampling.temperature));
  };
  for (const TopLogprob& t : top) total += weight(t);
  for (const TopLogprob& t : top) {
    said.push_back(t.id);
    add_sequences(narrow, said, p * weight(t) / total, law);
    said.pop_back();
  }
}

class EngineAcceptance : public testing::TestWithParam<Acceptance> {};

TEST_P(EngineAcceptance, KeepsTheDistribution) {
  const int32_t requests = test::kSanitized ? 4 : 16;
  Request narrow = narrow_request();
  std::map<std::vector<int32_t>, double> law;
  add_sequences(narrow, {}, 1, law);
  ASSERT_EQ(law.size(), 27u);

  Speculating engine(GetParam());
  narrow.choices = kMaxChoices;
  for (int32_t i = 0; i < requests; ++i) {
    narrow.sampling.seed = static_cast<uint64_t>(i) * kMaxChoices;
    engine->submit(narrow);
  }
  ASSERT_TRUE(engine->drain(100000));
  std::vector<int64_t> counts(law.size());
  std::vector<double> p;
  for (const auto& [said, probability] : law) p.push_back(probability);
  for (RequestId id = 0; id < requests; ++id) {
    for (int32_t choice = 0; choice < kMaxChoices; ++choice) {
      const std::vector<int32_t>& tokens = engine->answer(id, choice).tokens;
      const auto found = law.find({tokens.begin(), tokens.begin() + kTokens});
      ASSERT_NE(found, law.end()) << "a token that is not among the most likely";
      ++counts[static_cast<size_t>(std::distance(law.begin(), found))];
    }
  }
  const ChiSquare chi(counts, p, int64_t{requests} * kMaxChoices);
  EXPECT_LT(chi.value, chi.bound);
  EXPECT_GT(engine.stats().accepted_tokens(), 0);
  EXPECT_LT(engine.stats().accepted_tokens(), engine.stats().drafted_tokens());
}

INSTANTIATE_TEST_SUITE_P(Both, EngineAcceptance, testing::Values(Acceptance::kMatch, Acceptance::kRatio),
                         [](const auto& mode) { return mode.param == Acceptance::kRatio ? "ratio" : "match"; });

// Requests of every kind that draws.
std::vector<Request> all_kinds() {
  std::vector<Request> all;
  for (uint64_t i = 0; i < 8; ++i) {
    Request one = request(20 + i, 9 + 13 * static_cast<int64_t>(i), 40);
    if (i == 1) one.sampling.top_p = 0.8f;
    if (i == 2) one.frequency_penalty = 0.7f, one.repetition_penalty = 1.2f;
    if (i == 3) one.logit_bias = {{.id = 7, .delta = 4}}, one.logprobs = 4;
    if (i == 4) one.policies = {std::make_shared<CountingPolicy>(30, 1 << 20, true)};
    if (i == 5) one.sampling.temperature = 0;
    if (i == 6) one.sampling = {.temperature = 0.7f, .top_k = 12, .min_p = 0.02f, .seed = 5};
    all.push_back(std::move(one));
  }
  return all;
}

TEST(RatioAcceptance, AnAnswerDoesNotDependOnTheCompany) {
  std::vector<RecordedAnswer> alone;
  for (Request& one : all_kinds()) {
    Speculating engine(Acceptance::kRatio);
    engine->submit(std::move(one));
    engine->drain();
    alone.push_back(engine->answer(0));
  }
  Speculating together(Acceptance::kRatio, 5, 200);
  for (Request& one : all_kinds()) {
    together->submit(std::move(one));
    together->step();
    together->core().scheduler().reverse_running();
  }
  together->drain();
  for (size_t i = 0; i < alone.size(); ++i) {
    const RecordedAnswer& answer = together->answer(i);
    EXPECT_EQ(answer.tokens, alone[i].tokens) << i;
    EXPECT_EQ(answer.logprobs, alone[i].logprobs) << i;
    EXPECT_EQ(answer.usage.accepted_tokens, alone[i].usage.accepted_tokens) << i;
  }
  EXPECT_EQ(together->answer(4).tokens.size(), 30u);
  EXPECT_GT(together.stats().accepted_tokens(), 0);
}

TEST(RatioAcceptance, AnotherSeedAnotherAnswerGreedyTheSame) {
  const auto answer = [](Acceptance acceptance, float temperature, uint64_t seed) {
    Speculating engine(acceptance);
    Request one = request(3, 30, 60);
    one.sampling = {.temperature = temperature, .seed = seed};
    engine->submit(std::move(one));
    engine->drain();
    return engine->answer(0).tokens;
  };
  EXPECT_EQ(answer(Acceptance::kRatio, 1, 1), answer(Acceptance::kRatio, 1, 1));
  EXPECT_NE(answer(Acceptance::kRatio, 1, 1), answer(Acceptance::kRatio, 1, 2));
  EXPECT_NE(answer(Acceptance::kRatio, 1, 1), answer(Acceptance::kMatch, 1, 1)) << "other draws";
  EXPECT_EQ(answer(Acceptance::kRatio, 0, 1), answer(Acceptance::kMatch, 0, 2));
}

// Log-probabilities are those of the token under the model, whichever way it came.
TEST(RatioAcceptance, LogprobsAreTheModels) {
  Speculating engine(Acceptance::kRatio);
  Request one = request(4, 25, 50);
  one.exact = true;
  engine->submit(one);
  engine->drain();
  const RecordedAnswer& answer = engine->answer(0);
  EXPECT_GT(answer.usage.accepted_tokens, 0);
  Request whole = one;
  whole.prompt.insert(whole.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  whole.wants_prompt_rows = true;
  whole.max_tokens = 1;
  Speculating plain(Acceptance::kMatch, 0);
  plain->submit(whole);
  plain->drain();
  const std::vector<float>& expected = plain->sent()[0].sink->prompt_logprobs();
  ASSERT_EQ(expected.size(), one.prompt.size() + answer.tokens.size() - 1);
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    EXPECT_EQ(answer.logprobs[i], expected[one.prompt.size() - 1 + i]) << i;
  }
}

TEST(RatioAcceptance, Refusals) {
  const auto refusal = [](const EngineConfig& config) -> std::string {
    try {
      const Config& model = nano().checkpoint.config();
      const Topology topology = make_topology(model);
      resolve(config, model, topology, Geometry(geometry_inputs(model, topology, 128, CacheFormat{}, 5)));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal({.num_speculative_tokens = 5, .acceptance = Acceptance::kRatio}), "");
  EXPECT_NE(refusal({.num_speculative_tokens = 5,
                     .acceptance = Acceptance::kRatio,
                     .profile = std::make_shared<const CalibrationProfile>()})
                .find("fixed width"),
            std::string::npos);
  EXPECT_NE(refusal({.acceptance = Acceptance::kRatio}).find("--speculative dspark"), std::string::npos);
  EXPECT_NE(refusal({.num_speculative_tokens = 5, .acceptance = Acceptance::kRatio, .forced_acceptance_length = 2})
                .find("forced"),
            std::string::npos);
}

}  // namespace
}  // namespace folio
