// Ratio and match acceptance keep the distribution of the target (spec/model.md 9.4): blocks of two drafts, drafted and
// verified by the ops, a million of them, against the joint distribution of the first two tokens.
#include <gtest/gtest.h>

#include <functional>

#include "ops/cpu/cpu_test.h"
#include "ops/ops.h"
#include "ops/sample_test_util.h"

namespace folio {
namespace {

constexpr int64_t kVocab = 12, kRank = 8, kHidden = 32;
constexpr int32_t kWidth = 2, kBatch = 1000;

// How blocks are drafted and checked.
struct Mode {
  bool ratio = true;
  SamplingParams params;
  // Changes what the sampler is told of the drafts' distribution.
  std::function<void(std::vector<DraftCandidate>&)> lie = [](auto&) {};
};

// A target whose row for the token behind `previous` is random, and a draft head that is like it to some extent.
class Blocks {
 public:
  explicit Blocks(const std::string& isa)
      : ops_(isa == "ref" ? make_reference_ops() : make_cpu_ops({.isa = isa, .threads = 1})) {
    ops_->reserve({.max_rows = kBatch * kWidth,
                   .max_linear_in = kHidden + kRank,
                   .hidden = kHidden,
                   .vocab = kVocab,
                   .max_drafting = kBatch,
                   .markov_rank = kRank});
    embed_ = ops_->prepare(WeightKind::kBf16, data_.bf16_matrix(kVocab, kRank, 0.6f));
    head_ = ops_->prepare(WeightKind::kBf16, data_.bf16_matrix(kVocab, kRank, 0.6f));
    confidence_ = ops_->prepare(WeightKind::kBf16, data_.bf16_matrix(1, kHidden + kRank, 0.1f));
    for (int64_t previous = 0; previous <= kVocab; ++previous) {
      target_.push_back(random_row(100 + static_cast<uint64_t>(previous), kVocab, 1.2f));
    }
    for (int32_t i = 0; i < kWidth; ++i) {
      const SampleRow noise = random_row(200 + static_cast<uint64_t>(i), kVocab, 0.7f);
      for (size_t id = 0; id < kVocab; ++id) draft_logits_.push_back(first().logits[id] + noise.logits[id]);
    }
  }

  struct Report {
    std::vector<int64_t> pairs = std::vector<int64_t>(kVocab * kVocab);
    int64_t blocks = 0, accepted = 0;  // first drafts
  };

  Report run(const Mode& mode, int64_t blocks) {
    Report report;
    for (uint64_t seed = 0; report.blocks < blocks; seed += kBatch) batch(mode, seed, report);
    return report;
  }

  // The distribution of the first two tokens.
  std::vector<double> law(const SamplingParams& params) const {
    std::vector<double> pairs;
    const std::vector<double> p = row_law(first(), params);
    for (size_t id = 0; id < kVocab; ++id) {
      for (const double next : row_law(behind(static_cast<int32_t>(id)), params)) pairs.push_back(p[id] * next);
    }
    return pairs;
  }
  // The share of first drafts that is accepted: of q, by ratio the overlap with p, else p of its most likely id.
  double acceptance(const Mode& mode) {
    const std::vector<double> p = row_law(first(), mode.params);
    SampleRow q;
    q.logits = draft(mode, 0, 1).logits;
    if (!mode.ratio) {
      return p[static_cast<size_t>(std::max_element(q.logits.begin(), q.logits.end()) - q.logits.begin())];
    }
    double overlap = 0;
    const std::vector<double> proposed = row_law(q, mode.params);
    for (size_t id = 0; id < kVocab; ++id) overlap += std::min(p[id], proposed[id]);
    return overlap;
  }

 private:
  static constexpr int32_t kAnchor = 3;
  struct Drafts {
    std::vector<int32_t> tokens;
    std::vector<DraftCandidate> candidates;
    std::vector<float> logits;  // of the first row
  };

  const SampleRow& first() const { return target_[kVocab]; }
  const SampleRow& behind(int32_t id) const { return target_[static_cast<size_t>(id)]; }
  static std::vector<double> row_law(SampleRow row, const SamplingParams& params) {
    row.params = params;
    return distribution(row);
  }
  static std::vector<SamplingParams> params(const Mode& mode, uint64_t seed, int32_t count, int32_t each) {
    std::vector<SamplingParams> all;
    for (int32_t i = 0; i < count * each; ++i) {
      all.push_back(mode.params);
      all.back().seed = seed + static_cast<uint64_t>(i / each);
    }
    return all;
  }

  Drafts draft(const Mode& mode, uint64_t seed, int32_t count) {
    const auto rows = static_cast<size_t>(count * kWidth);
    Drafts drafts{.tokens = std::vector<int32_t>(rows),
                  .candidates = std::vector<DraftCandidate>(rows * kDraftCandidates),
                  .logits = {}};
    std::vector<float> logits, confidences(rows);
    std::vector<int32_t> anchors(rows, kAnchor), positions;
    for (int32_t i = 0; i < count; ++i) {
      logits.insert(logits.end(), draft_logits_.begin(), draft_logits_.end());
      for (int32_t row = 0; row < kWidth; ++row) positions.push_back(40 + row);
    }
    const std::vector<bf16> hidden(rows * kHidden);
    const std::vector<SamplingParams> sampling = params(mode, seed, count, 1);
    ops_->draft_heads({.num_requests = count,
                       .width = kWidth,
                       .anchors = anchors.data(),
                       .hidden = hidden.data(),
                       .embed = embed_.get(),
                       .head = head_.get(),
                       .confidence = confidence_.get(),
                       .logits = logits.data(),
                       .params = mode.ratio ? sampling.data() : nullptr,
                       .positions = positions.data(),
                       .tokens = drafts.tokens.data(),
                       .confidences = confidences.data(),
                       .candidates = drafts.candidates.data()});
    drafts.logits.assign(logits.begin(), logits.begin() + kVocab);
    return drafts;
  }

  std::vector<int32_t> sample(const std::vector<float>& logits, const std::vector<int32_t>& positions,
                              const std::vector<SamplingParams>& sampling, const std::vector<LogitRules>& rules,
                              const std::vector<DraftCandidate>& candidates) {
    std::vector<int32_t> sampled(positions.size()), heads;
    std::vector<float> logprobs(positions.size());
    for (int32_t i = 0; i < std::ssize(positions); ++i) heads.push_back(i);
    ops_->sample({.logits = logits.data(),
                  .vocab = kVocab,
                  .num_rows = static_cast<int32_t>(positions.size()),
                  .head_rows = heads.data(),
                  .positions = positions.data(),
                  .params = sampling.data(),
                  .lists = {.rules = rules.empty() ? nullptr : rules.data(), .candidates = candidates.data()},
                  .sampled = sampled.data(),
                  .logprobs = logprobs.data()});
    return sampled;
  }

  // Rows 0 and 1 of each block check its drafts. Where the first is rejected, the second token comes of a later step.
  void batch(const Mode& mode, uint64_t seed, Report& report) {
    Drafts drafts = draft(mode, seed, kBatch);
    mode.lie(drafts.candidates);
    std::vector<float> logits;
    std::vector<int32_t> positions;
    std::vector<LogitRules> rules;
    for (int32_t row = 0; row < kBatch * kWidth; ++row) {
      const int32_t id = drafts.tokens[static_cast<size_t>(row)];
      const SampleRow& target = row % kWidth == 0 ? first() : behind(drafts.tokens[static_cast<size_t>(row - 1)]);
      logits.insert(logits.end(), target.logits.begin(), target.logits.end());
      positions.push_back(40 + row % kWidth);
      rules.push_back({});
      const auto* begin = drafts.candidates.data() + row * kDraftCandidates;
      const auto* end = std::find_if(begin, begin + kDraftCandidates, [](const auto& c) { return c.id < 0; });
      if (!mode.ratio) continue;
      rules.back().draft = id;
      rules.back().first_candidate = row * kDraftCandidates;
      rules.back().num_candidates = static_cast<int32_t>(end - begin);
    }
    const std::vector<int32_t> sampled =
        sample(logits, positions, params(mode, seed, kBatch, kWidth), rules, drafts.candidates);

    std::vector<size_t> again;
    std::vector<float> later;
    std::vector<SamplingParams> later_params;
    const auto count = [&](int32_t one, int32_t two) { ++report.pairs[static_cast<size_t>(one * kVocab + two)]; };
    for (size_t block = 0; block < kBatch; ++block) {
      ++report.blocks;
      const size_t row = block * kWidth;
      if (sampled[row] == drafts.tokens[row]) {
        ++report.accepted;
        count(sampled[row], sampled[row + 1]);
        continue;
      }
      again.push_back(row);
      const std::vector<float>& next = behind(sampled[row]).logits;
      later.insert(later.end(), next.begin(), next.end());
      later_params.push_back(mode.params);
      later_params.back().seed = seed + block;
    }
    const std::vector<int32_t> second = sample(later, std::vector<int32_t>(again.size(), 41), later_params, {}, {});
    for (size_t i = 0; i < again.size(); ++i) count(sampled[again[i]], second[i]);
  }

  op_cases::Data data_{11};  // owns the weights' values
  std::unique_ptr<Ops> ops_;
  WeightHandle embed_, head_, confidence_;
  std::vector<SampleRow> target_;  // behind each id; the last is that of the first row
  std::vector<float> draft_logits_;
};

class AcceptanceLaw : public testing::TestWithParam<std::string> {
 protected:
  // The distribution of the tokens, and how often a first draft is accepted, which is within five standard deviations.
  void expect_law(const Mode& mode, int64_t blocks) {
    const Blocks::Report report = blocks_.run(mode, blocks);
    const ChiSquare chi(report.pairs, blocks_.law(mode.params), report.blocks);
    EXPECT_LT(chi.value, chi.bound);
    const double share = static_cast<double>(report.accepted) / static_cast<double>(report.blocks);
    const double expected = blocks_.acceptance(mode);
    EXPECT_NEAR(share, expected, 5 * std::sqrt(expected * (1 - expected) / static_cast<double>(report.blocks)));
  }
  Blocks blocks_{GetParam()};
};

TEST_P(AcceptanceLaw, BothKeepTheDistribution) {
  const SamplingParams plain{.temperature = 0.9f};
  expect_law({.ratio = false, .params = plain}, 1'000'000);
  expect_law({.ratio = true, .params = plain}, 1'000'000);
  // The point of it: more drafts are accepted.
  EXPECT_GT(blocks_.acceptance({.ratio = true, .params = plain}),
            blocks_.acceptance({.ratio = false, .params = plain}) + 0.2);
}

TEST_P(AcceptanceLaw, UnderFilters) {
  for (const SamplingParams& filtered :
       {SamplingParams{.temperature = 1.3f, .top_k = 5}, SamplingParams{.temperature = 0.8f, .top_p = 0.8f},
        SamplingParams{.temperature = 2.0f, .top_k = 9, .top_p = 0.9f, .min_p = 0.1f}}) {
    expect_law({.ratio = true, .params = filtered}, 100'000);
  }
}

// The bound is one that a wrong sampler does not meet.
TEST_P(AcceptanceLaw, AWrongDistributionOfTheDraftsIsSeen) {
  const Mode lying{.ratio = true, .params = {.temperature = 0.9f}, .lie = [](std::vector<DraftCandidate>& all) {
                     // The two most likely ids of each row with each other's probability.
                     for (size_t row = 0; row < all.size(); row += kDraftCandidates) {
                       std::swap(all[row].probability, all[row + 1].probability);
                     }
                   }};
  const Blocks::Report report = blocks_.run(lying, 100'000);
  const ChiSquare chi(report.pairs, blocks_.law(lying.params), report.blocks);
  EXPECT_GT(chi.value, 3 * chi.bound);
}

struct Sampled {
  int32_t id = -1;
  float logprob = 0;
  TopLogprob top{};  // the most likely id, if the rules ask for it
};

// What is drawn at one position.
Sampled sample_one(Ops& ops, const SampleRow& row, const SamplingParams& params, const SampleLists& lists) {
  const int32_t head = 0, position = 9;
  Sampled sampled;
  std::vector<TopLogprob> top(kMaxTopLogprobs);
  ops.sample({.logits = row.logits.data(),
              .vocab = kVocab,
              .num_rows = 1,
              .head_rows = &head,
              .positions = &position,
              .params = &params,
              .lists = lists,
              .sampled = &sampled.id,
              .logprobs = &sampled.logprob,
              .top = top.data()});
  sampled.top = top[0];
  return sampled;
}

// A draft that may not come is never taken, whatever its probability.
TEST_P(AcceptanceLaw, AMaskedDraftIsRejected) {
  std::unique_ptr<Ops> ops = GetParam() == "ref" ? make_reference_ops() : make_cpu_ops({.isa = GetParam()});
  ops->reserve({.max_rows = 1, .vocab = kVocab});
  const SampleRow row = random_row(5, kVocab, 1);
  const uint64_t mask = ~(uint64_t{1} << 4);
  const std::vector<DraftCandidate> certain = {{.id = 4, .probability = 1}};
  const LogitRules rules{.mask = 0, .top = 1, .draft = 4, .first_candidate = 0, .num_candidates = 1};
  std::vector<int64_t> counts(kVocab);
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    const Sampled got =
        sample_one(*ops, row, {.temperature = 1, .seed = seed},
                   {.rules = &rules, .bitsets = &mask, .bitset_words = 1, .candidates = certain.data()});
    ++counts[static_cast<size_t>(got.id)];
    if (got.id != got.top.id) continue;
    EXPECT_EQ(got.logprob, got.top.logprob) << "of the unmodified logits";
  }
  SampleRow masked = row;
  masked.banned = {4};
  const ChiSquare chi(counts, distribution(masked), 5000);
  EXPECT_LT(chi.value, chi.bound);
}

// A greedy request has one answer, whatever was drafted.
TEST(Acceptance, GreedyRowsIgnoreTheDraft) {
  const std::unique_ptr<Ops> ops = make_reference_ops();
  ops->reserve({.max_rows = 1, .vocab = kVocab});
  const SampleRow row = random_row(6, kVocab, 1);
  const auto best = std::max_element(row.logits.begin(), row.logits.end()) - row.logits.begin();
  const std::vector<DraftCandidate> certain = {{.id = 4, .probability = 1}};
  const LogitRules rules{.draft = 4, .num_candidates = 1};
  const Sampled got = sample_one(*ops, row, {.temperature = 0}, {.rules = &rules, .candidates = certain.data()});
  EXPECT_EQ(got.id, best);
}

std::vector<std::string> backends() { return {"ref", test_isas().back()}; }

INSTANTIATE_TEST_SUITE_P(All, AcceptanceLaw, testing::ValuesIn(backends()),
                         [](const auto& backend) { return backend.param; });

}  // namespace
}  // namespace folio
