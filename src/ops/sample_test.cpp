// The sample op against a naive oracle: every filter and rule, ties, odd logits, and the distribution of the draws.
#include "ops/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ops/cpu/cpu_test.h"
#include "ops/ops.h"
#include "ops/sample_test_util.h"

namespace folio {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Row = SampleRow;

struct Result {
  int32_t id = -1;
  float logprob = 0;
  std::vector<TopLogprob> top;
};

class Sampler {
 public:
  explicit Sampler(const std::string& isa)
      : ops_(isa == "ref" ? make_reference_ops() : make_cpu_ops({.isa = isa, .threads = 1})) {}

  std::vector<Result> run(const Row& row, const std::vector<int32_t>& positions) {
    const int64_t vocab = row.vocab(), words = (vocab + 63) / 64;
    const auto n = static_cast<int32_t>(positions.size());
    if (vocab > reserved_) ops_->reserve({.max_rows = 1, .vocab = reserved_ = vocab});
    std::vector<float> logits;
    std::vector<int32_t> head_rows;
    for (int32_t i = 0; i < n; ++i) {
      logits.insert(logits.end(), row.logits.begin(), row.logits.end());
      head_rows.push_back(i);
    }
    LogitRules rules;
    std::vector<LogitDelta> deltas = row.biases;
    deltas.insert(deltas.end(), row.penalties.begin(), row.penalties.end());
    rules.num_biases = static_cast<int32_t>(row.biases.size());
    rules.num_penalties = static_cast<int32_t>(row.penalties.size());
    rules.top = row.top;
    std::vector<uint64_t> bitsets(static_cast<size_t>(words), ~uint64_t{0});
    bitsets.resize(static_cast<size_t>(2 * words));
    const auto word = [](int32_t id) { return static_cast<size_t>(id / 64); };
    for (const int32_t id : row.banned) bitsets[word(id)] &= ~(uint64_t{1} << (id % 64));
    if (!row.banned.empty()) rules.mask = 0;
    for (const int32_t id : row.seen) bitsets[static_cast<size_t>(words) + word(id)] |= uint64_t{1} << (id % 64);
    if (!row.seen.empty()) rules.seen = 1;
    rules.repetition_penalty = row.repetition_penalty;

    const std::vector<SamplingParams> params(positions.size(), row.params);
    const std::vector<LogitRules> all_rules(positions.size(), rules);
    std::vector<int32_t> sampled(positions.size(), -1);
    std::vector<float> logprobs(positions.size());
    std::vector<TopLogprob> top(positions.size() * kMaxTopLogprobs);
    ops_->sample({.logits = logits.data(),
                  .vocab = vocab,
                  .num_rows = n,
                  .head_rows = head_rows.data(),
                  .positions = positions.data(),
                  .params = params.data(),
                  .lists = {.rules = all_rules.data(),
                            .deltas = deltas.data(),
                            .bitsets = bitsets.data(),
                            .bitset_words = words},
                  .sampled = sampled.data(),
                  .logprobs = logprobs.data(),
                  .top = top.data()});
    std::vector<Result> results;
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto* first = top.data() + i * kMaxTopLogprobs;
      results.push_back({.id = sampled[i], .logprob = logprobs[i], .top = {first, first + row.top}});
    }
    return results;
  }
  Result run(const Row& row, int32_t position = 0) { return run(row, std::vector<int32_t>{position})[0]; }

 private:
  std::unique_ptr<Ops> ops_;
  int64_t reserved_ = 0;
};

double logprob(const Row& row, size_t id) {
  double total = 0;
  const float top = *std::max_element(row.logits.begin(), row.logits.end());
  for (const float z : row.logits) total += std::exp(static_cast<double>(z) - static_cast<double>(top));
  return static_cast<double>(row.logits[id]) - static_cast<double>(top) - std::log(total);
}

// Draws of many positions look like the oracle's distribution, and nothing else is ever drawn.
void expect_distribution(Sampler& sampler, const Row& row, int32_t draws) {
  const std::vector<double> p = distribution(row);
  std::vector<int64_t> counts(p.size());
  std::vector<int32_t> positions;
  for (int32_t position = 0; position < draws; ++position) positions.push_back(position);
  for (const Result& result : sampler.run(row, positions)) ++counts[static_cast<size_t>(result.id)];
  const ChiSquare chi(counts, p, draws);
  EXPECT_LT(chi.value, chi.bound);
}

class Sample : public testing::TestWithParam<std::string> {
 protected:
  Sampler sampler_{GetParam()};
};

TEST_P(Sample, GreedyTakesTheLargestLogitLowestIdFirst) {
  Row row = random_row(1, 300, 1);
  row.params.temperature = 0;
  row.logits[250] = row.logits[77] = row.logits[191] = 9;
  const Result result = sampler_.run(row);
  EXPECT_EQ(result.id, 77);
  EXPECT_NEAR(static_cast<double>(result.logprob), logprob(row, 77), 1e-5);
}

TEST_P(Sample, DrawsFollowTheDistribution) {
  for (const float temperature : {0.4f, 1.0f, 2.5f}) {
    Row row = random_row(2, 60, 1.5f);
    row.params.temperature = temperature;
    expect_distribution(sampler_, row, 100000);
  }
}

TEST_P(Sample, FiltersFollowTheDistribution) {
  Row row = random_row(3, 70, 1.5f);
  for (int i = 0; i < 20; ++i) row.logits[static_cast<size_t>(3 * i)] = 1.0f;  // ties across every border
  for (const int32_t top_k : {-1, 0, 1, 2, 11, 69, 70, 1000}) {
    for (const float top_p : {1.0f, 0.95f, 0.5f, 0.01f}) {
      for (const float min_p : {0.0f, 0.2f, 1.0f}) {
        row.params.top_k = top_k;
        row.params.top_p = top_p;
        row.params.min_p = min_p;
        expect_distribution(sampler_, row, 3000);
      }
    }
  }
}

TEST_P(Sample, WideVocabularyKeepsExactlyTheNucleus) {
  // More candidates than one block or part of the vocabulary holds.
  Row row = random_row(4, 9001, 2.0f);
  for (const auto& [top_k, top_p] :
       {std::pair{0, 0.3f}, std::pair{0, 0.9f}, std::pair{500, 1.0f}, std::pair{4000, 0.7f}}) {
    row.params.top_k = top_k;
    row.params.top_p = top_p;
    expect_distribution(sampler_, row, 2000);
  }
}

TEST_P(Sample, RulesFollowTheDistribution) {
  Row row = random_row(5, 50, 1.5f);
  row.biases = {{3, 2.0f}, {4, -2.0f}, {5, -kInfinity}, {3, 0.5f}};
  row.seen = {3, 4, 7, 8, 49};
  row.repetition_penalty = 1.5f;
  row.penalties = {{3, -1.0f}, {20, 0.7f}, {49, -0.3f}};
  row.banned = {0, 11, 48};
  expect_distribution(sampler_, row, 100000);
  row.params.top_p = 0.8f;
  row.params.temperature = 0.7f;
  expect_distribution(sampler_, row, 100000);
  row.repetition_penalty = 0.5f;
  row.params.temperature = 0;
  expect_distribution(sampler_, row, 10);
}

TEST_P(Sample, RepetitionPenaltyComesBetweenBiasesAndPenalties) {
  // Id 0: ((1 + 1) / 2) - 0.4 = 0.6; id 1: -1 * 2 = -2; a wrong order would put another first.
  Row row;
  row.logits = {1.0f, -1.0f, 0.55f, 0.65f};
  row.params.temperature = 0;
  row.biases = {{0, 1.0f}};
  row.penalties = {{0, -0.4f}};
  row.seen = {0, 1};
  row.repetition_penalty = 2;
  EXPECT_EQ(sampler_.run(row).id, 3);
  row.banned = {3};
  EXPECT_EQ(sampler_.run(row).id, 0);
  row.banned = {0, 3};
  EXPECT_EQ(sampler_.run(row).id, 2);
}

TEST_P(Sample, LogprobsAreOfTheUnmodifiedLogits) {
  Row row = random_row(6, 200, 2);
  row.params.temperature = 0.2f;
  row.params.top_k = 3;
  row.biases = {{17, 50.0f}};
  row.top = 5;
  const Result result = sampler_.run(row);
  EXPECT_EQ(result.id, 17);
  EXPECT_NEAR(static_cast<double>(result.logprob), logprob(row, 17), 1e-5);
  const std::vector<size_t> order = by_likelihood({row.logits.begin(), row.logits.end()});
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(result.top[i].id, static_cast<int32_t>(order[i]));
    EXPECT_NEAR(static_cast<double>(result.top[i].logprob), logprob(row, order[i]), 1e-5);
  }
}

TEST_P(Sample, TopIdsAreOrderedLowestIdFirst) {
  for (const int64_t vocab : {20, 21, 64, 5000}) {
    Row row = random_row(7, vocab, 2);
    for (float& z : row.logits) z = std::round(z);
    row.top = kMaxTopLogprobs;
    row.params.temperature = 0;
    const Result result = sampler_.run(row);
    const std::vector<size_t> order = by_likelihood({row.logits.begin(), row.logits.end()});
    for (size_t i = 0; i < kMaxTopLogprobs; ++i) EXPECT_EQ(result.top[i].id, static_cast<int32_t>(order[i])) << i;
    // The same number for the same token, whatever list it is in.
    EXPECT_EQ(result.top[0].id, result.id);
    EXPECT_EQ(result.top[0].logprob, result.logprob);
  }
  Row few;
  few.logits = {1.0f, kNan, 2.0f, -kInfinity};
  few.top = 4;
  const Result result = sampler_.run(few);
  EXPECT_EQ(result.top[0].id, 2);
  EXPECT_EQ(result.top[1].id, 0);
  EXPECT_EQ(result.top[2].id, -1);
  EXPECT_EQ(result.top[3].id, -1);
}

TEST_P(Sample, ForcedTakesTheIdThroughEveryRule) {
  Row row = random_row(8, 100, 2);
  row.params.forced = 42;
  row.banned = {42};
  row.top = 2;
  const Result result = sampler_.run(row);
  EXPECT_EQ(result.id, 42);
  EXPECT_NEAR(static_cast<double>(result.logprob), logprob(row, 42), 1e-5);
}

TEST_P(Sample, MaskOfAllButOneLeavesThatOne) {
  for (const float temperature : {0.0f, 1.0f}) {
    Row row = random_row(9, 130, 2);
    row.params.temperature = temperature;
    row.params.top_p = 0.5f;
    for (int32_t id = 0; id < 130; ++id) {
      if (id != 128) row.banned.push_back(id);
    }
    for (int32_t position = 0; position < 20; ++position) EXPECT_EQ(sampler_.run(row, position).id, 128);
    // Nothing left: the most likely id of the unmodified logits.
    row.banned.push_back(128);
    EXPECT_EQ(sampler_.run(row).id,
              static_cast<int32_t>(std::max_element(row.logits.begin(), row.logits.end()) - row.logits.begin()));
  }
}

TEST_P(Sample, OddLogitsAreHarmless) {
  for (const float temperature : {0.0f, 1.0f, 1e-4f, 1e30f}) {
    for (const float top_p : {1.0f, 0.9f}) {
      Row row;
      row.params.temperature = temperature;
      row.params.top_p = top_p;
      row.top = 1;
      row.logits.assign(300, -kInfinity);
      row.logits[123] = 3e38f;
      row.logits[7] = kNan;
      EXPECT_EQ(sampler_.run(row).id, 123);
      EXPECT_EQ(sampler_.run(row).logprob, 0);
      row.logits[123] = kInfinity;
      EXPECT_EQ(sampler_.run(row).id, 123);
      EXPECT_EQ(sampler_.run(row).logprob, 0);
      row.logits.assign(300, kNan);
      EXPECT_EQ(sampler_.run(row).id, 0);
      EXPECT_EQ(sampler_.run(row).top[0].id, -1);
      row.logits.assign(300, -kInfinity);
      EXPECT_EQ(sampler_.run(row).id, 0);
      row.logits.assign(300, kNan);
      row.logits[299] = -1e30f;
      EXPECT_EQ(sampler_.run(row).id, 299);
    }
  }
}

TEST_P(Sample, ADrawDependsOnSeedAndPositionAlone) {
  Row row = random_row(10, 500, 1);
  std::vector<int32_t> positions, reversed;
  for (int32_t p = 0; p < 100; ++p) positions.push_back(p);
  reversed.assign(positions.rbegin(), positions.rend());
  const std::vector<Result> all = sampler_.run(row, positions), backwards = sampler_.run(row, reversed);
  std::set<int32_t> ids;
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(all[i].id, backwards[99 - i].id);
    EXPECT_EQ(all[i].id, sampler_.run(row, positions[i]).id);
    ids.insert(all[i].id);
  }
  EXPECT_GT(ids.size(), 30u);
  row.params.seed += 1;
  int same = 0;
  for (size_t i = 0; i < 100; ++i) same += sampler_.run(row, positions[i]).id == all[i].id;
  EXPECT_LT(same, 20);
}

std::vector<std::string> backends() {
  std::vector<std::string> names = test_isas();
  names.insert(names.begin(), "ref");
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Sample, testing::ValuesIn(backends()), [](const auto& backend) { return backend.param; });

}  // namespace
}  // namespace folio
