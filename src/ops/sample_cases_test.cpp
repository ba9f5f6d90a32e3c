// Cases of the sample op (op_cases.h): rows with every kind of filter and rule beside each other.
#include <limits>

#include "ops/op_cases.h"
#include "ops/sample.h"

namespace folio::op_cases {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Inputs {
  std::vector<float> logits;  // [rows, vocab]
  std::vector<SamplingParams> params;
  std::vector<LogitRules> rules;
  std::vector<LogitDelta> deltas;
  std::vector<uint64_t> bitsets;
  std::vector<int32_t> positions;
};

Inputs make_inputs(int32_t rows, int64_t vocab) {
  Data data(static_cast<uint64_t>(vocab));
  const int64_t words = (vocab + 63) / 64;
  Inputs in;
  in.logits = data.floats(rows * vocab, 0, 3);
  const auto id = [&] { return static_cast<int32_t>(data.below(static_cast<uint32_t>(vocab))); };
  for (int32_t r = 0; r < rows; ++r) {
    float* logits = in.logits.data() + r * vocab;
    // Peaked rows, and equal logits on some.
    if (r % 3 == 0) logits[id()] += 12;
    if (r % 4 == 1) {
      for (int64_t i = 0; i < vocab; ++i) logits[i] = static_cast<float>(static_cast<int>(logits[i]));
    }
    if (r % 7 == 2) logits[id()] = std::numeric_limits<float>::quiet_NaN();
    if (r % 7 == 3) logits[id()] = -kInfinity;
    SamplingParams params;
    params.temperature = r % 5 == 0 ? 0.0f : 0.3f * static_cast<float>(1 + r % 5);
    params.top_k = r % 4 == 0 ? static_cast<int32_t>(1 + r) : -(r % 2);
    params.top_p = r % 3 == 1 ? 0.9f : 1.0f;
    params.min_p = r % 6 == 5 ? 0.05f : 0.0f;
    params.seed = static_cast<uint64_t>(r);
    params.forced = r % 8 == 6 ? id() : -1;
    in.params.push_back(params);

    LogitRules rules;
    rules.first_delta = static_cast<int32_t>(in.deltas.size());
    if (r % 2 == 1) {
      rules.num_biases = r % 5;
      rules.num_penalties = r % 9;
      for (int32_t i = 0; i < rules.num_biases; ++i)
        in.deltas.push_back({.id = id(), .delta = i == 0 ? -kInfinity : 4.0f});
      for (int32_t i = 0; i < rules.num_penalties; ++i) in.deltas.push_back({.id = id(), .delta = -1.5f});
    }
    const auto add_bits = [&](int sparse) {
      for (int64_t w = 0; w < words; ++w) {
        uint64_t bits = 0;
        for (int b = 0; b < 64; ++b) bits = bits << 1 | (data.below(8) < static_cast<uint32_t>(sparse) ? 1 : 0);
        in.bitsets.push_back(bits);
      }
      return static_cast<int32_t>(std::ssize(in.bitsets) / words - 1);
    };
    if (r % 4 == 3) rules.mask = add_bits(4);
    if (r % 6 == 1) {
      rules.seen = add_bits(1);
      rules.repetition_penalty = 1.3f;
    }
    rules.top = r % 3 == 2 ? 1 + r % kMaxTopLogprobs : 0;
    in.rules.push_back(rules);
    in.positions.push_back(static_cast<int32_t>(data.below(1000)));
  }
  return in;
}

Case sample_case(int32_t rows, int64_t vocab, bool with_rules) {
  Case c;
  c.name = "sample_" + std::to_string(vocab) + (with_rules ? "_rules" : "");
  c.rows = rows;
  c.limits.vocab = vocab;
  c.prepare = [=](Ops& ops) {
    return [=, &ops, in = make_inputs(rows, vocab)](const std::vector<int32_t>& chosen) {
      const size_t n = chosen.size();
      const std::vector<float> logits = choose(in.logits, chosen, vocab);
      const std::vector<SamplingParams> params = choose(in.params, chosen, 1);
      const std::vector<LogitRules> rules = choose(in.rules, chosen, 1);
      const std::vector<int32_t> positions = choose(in.positions, chosen, 1);
      std::vector<int32_t> head_rows;
      for (size_t i = 0; i < n; ++i) head_rows.push_back(static_cast<int32_t>(i));
      std::vector<int32_t> sampled(n), top_ids;
      std::vector<float> logprobs(n), top_values;
      std::vector<TopLogprob> top(n * kMaxTopLogprobs);
      SampleArgs args{.logits = logits.data(),
                      .vocab = vocab,
                      .num_rows = static_cast<int32_t>(n),
                      .head_rows = head_rows.data(),
                      .positions = positions.data(),
                      .params = params.data(),
                      .lists = {},
                      .sampled = sampled.data(),
                      .logprobs = logprobs.data(),
                      .top = top.data()};
      if (with_rules) {
        args.lists = {.rules = rules.data(),
                      .deltas = in.deltas.data(),
                      .bitsets = in.bitsets.data(),
                      .bitset_words = (vocab + 63) / 64};
      }
      ops.sample(args);
      for (const TopLogprob& t : top) {
        top_ids.push_back(t.id);
        top_values.push_back(t.logprob);
      }
      // The log of a sum that is off by some fp32 roundings.
      const auto bounded = [n](Output out, size_t width) {
        out.slack.assign(n, std::vector<float>(width, 2e-5f));
        return out;
      };
      return Outputs{output("sampled", Kind::kBytes, sampled, 1),
                     bounded(output("logprobs", Kind::kF32, logprobs, 1), 1),
                     output("top ids", Kind::kBytes, top_ids, kMaxTopLogprobs),
                     bounded(output("top logprobs", Kind::kF32, top_values, kMaxTopLogprobs), kMaxTopLogprobs)};
    };
  };
  return c;
}

}  // namespace

std::vector<Case> sample_cases() {
  return {sample_case(40, 67, true), sample_case(40, 257, false), sample_case(70, 9001, true)};
}

}  // namespace folio::op_cases
