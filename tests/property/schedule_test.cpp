// The engine under random schedules: every request ends exactly once with the tokens and log-probabilities, bit for
// bit, of its solo run; nothing leaks, nothing hangs.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "engine/engine_core.h"
#include "support/small_model.h"

namespace folio {
namespace {

using Random = std::mt19937_64;

int64_t uniform(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::kLength;
  Usage usage;
  int finishes = 0;
};

class Recorder final : public Sink {
 public:
  explicit Recorder(int32_t choices) : answers(static_cast<size_t>(choices)) {}
  void on_token(int32_t choice, int32_t id, float logprob) override {
    Answer& answer = answers[static_cast<size_t>(choice)];
    EXPECT_EQ(answer.finishes, 0);
    answer.tokens.push_back(id);
    answer.logprobs.push_back(logprob);
  }
  void on_finish(int32_t choice, FinishReason reason, const Usage& usage, const std::string&) override {
    Answer& answer = answers[static_cast<size_t>(choice)];
    answer.reason = reason;
    answer.usage = usage;
    ++answer.finishes;
  }
  std::vector<Answer> answers;
};

// What the schedules met, so that a test that meets nothing fails.
struct Coverage {
  int64_t hits = 0, preemptions = 0, aborted = 0, forks = 0, compared = 0;
};

struct Setup {
  RunnerOptions runner;
  EngineConfig engine;
};

const ModelFiles& files(const std::string& preset) {
  static std::map<std::string, ModelFiles> opened;
  if (!opened.contains(preset)) opened.emplace(preset, ModelFiles::open(test::small_model(preset)));
  return opened.at(preset);
}

Setup make_setup(Random& random) {
  Setup setup;
  setup.runner.max_model_len = 256;
  setup.runner.max_num_seqs = 6;
  setup.runner.max_rows = 96;
  setup.runner.max_head_rows = 96;
  setup.runner.block_size = uniform(random, 0, 1) ? 16 : 32;
  setup.runner.packed_cache = uniform(random, 0, 1);
  setup.runner.pages = static_cast<int32_t>(uniform(random, 12, 60)) * 32 / setup.runner.block_size;
  setup.runner.threads = 1;
  setup.engine.max_num_seqs = static_cast<int32_t>(uniform(random, 2, 6));
  setup.engine.max_num_batched_tokens = static_cast<int32_t>(uniform(random, 40, 96));
  setup.engine.long_prefill_token_threshold = uniform(random, 0, 2) ? 0 : 20;
  setup.engine.mix_prefill_and_decode = uniform(random, 0, 2);
  setup.engine.depth = static_cast<int32_t>(uniform(random, 1, 2));
  setup.engine.prefix_cache = uniform(random, 0, 3);
  setup.engine.decoder_replay = uniform(random, 0, 1);
  setup.engine.encoder_replay = false;
  setup.engine.state_checkpoint_interval = setup.runner.block_size * uniform(random, 1, 3);
  return setup;
}

std::shared_ptr<Request> make_request(Random& random, const std::vector<int32_t>& shared, int64_t vocab) {
  auto request = std::make_shared<Request>();
  if (uniform(random, 0, 1))
    request->prompt.assign(shared.begin(), shared.begin() + uniform(random, 1, std::ssize(shared)));
  const int64_t tail = uniform(random, request->prompt.empty() ? 1 : 0, 60);
  for (int64_t i = 0; i < tail; ++i) request->prompt.push_back(static_cast<int32_t>(uniform(random, 3, vocab - 3)));
  request->max_tokens = uniform(random, 1, 24);
  request->sampling.temperature = uniform(random, 0, 1) ? 0.0f : 1.0f;
  request->sampling.seed = static_cast<uint64_t>(uniform(random, 0, 5));
  request->ignore_eos = uniform(random, 0, 1);
  request->exact = uniform(random, 0, 3) == 0;
  request->wants_prompt_rows = uniform(random, 0, 9) == 0;
  request->choices = uniform(random, 0, 5) ? 1 : static_cast<int32_t>(uniform(random, 2, 3));
  if (uniform(random, 0, 3) == 0) request->stop_ids.push_back(static_cast<int32_t>(uniform(random, 3, vocab - 3)));
  return request;
}

Answer solo(const std::string& preset, const Setup& setup, const Request& request, int32_t choice) {
  Setup alone = setup;
  alone.runner.pages = 0;
  alone.runner.block_size = 128;
  alone.runner.max_rows = 256;
  alone.runner.max_head_rows = 256;
  alone.engine.max_num_batched_tokens = 256;
  alone.engine.long_prefill_token_threshold = 0;
  alone.engine.depth = 1;
  alone.engine.prefix_cache = false;
  ModelRunner runner(files(preset), alone.runner);
  EngineCore core(runner, alone.engine);
  auto copy = std::make_shared<Request>(request);
  copy->choices = 1;
  copy->sampling.seed += static_cast<uint64_t>(choice);
  auto sink = std::make_shared<Recorder>(1);
  copy->sink = sink;
  core.submit(0, copy);
  while (!core.empty()) core.step();
  return sink->answers[0];
}

void run_case(const std::string& preset, uint64_t seed, Coverage& coverage) {
  Random random(seed);
  const Setup setup = make_setup(random);
  ModelRunner runner(files(preset), setup.runner);
  std::memset(runner.pages().data(), 0xff, static_cast<size_t>(runner.pages().bytes()));
  std::memset(runner.states().data(), 0xff, static_cast<size_t>(runner.states().bytes()));
  EngineCore core(runner, setup.engine);
  const int64_t vocab = runner.config().vocab_size;
  std::vector<int32_t> shared;
  for (int i = 0; i < 120; ++i) shared.push_back(static_cast<int32_t>(uniform(random, 3, vocab - 3)));

  struct Sent {
    std::shared_ptr<Request> request;
    std::shared_ptr<Recorder> sink;
    bool cancelled = false;
  };
  std::vector<Sent> sent;
  const int64_t total = uniform(random, 3, 8);
  int64_t idle = 0;
  for (int tick = 0; std::ssize(sent) < total || !core.empty(); ++tick) {
    ASSERT_LT(tick, 4000) << "hangs, seed " << seed;
    if (std::ssize(sent) < total && uniform(random, 0, 3) == 0) {
      auto request = make_request(random, shared, vocab);
      auto sink = std::make_shared<Recorder>(request->choices);
      request->sink = sink;
      core.submit(std::ssize(sent), request);
      sent.push_back({request, sink});
    }
    if (!sent.empty() && uniform(random, 0, 40) == 0) {
      const auto victim = static_cast<size_t>(uniform(random, 0, std::ssize(sent) - 1));
      core.cancel(static_cast<RequestId>(victim));
      sent[victim].cancelled = true;
    }
    if (uniform(random, 0, 20) == 0) core.scheduler().preempt_youngest();
    if (uniform(random, 0, 10) == 0) core.scheduler().reverse_running();
    idle = core.step() ? 0 : idle + 1;
    ASSERT_LT(idle, 200) << "stuck, seed " << seed;
  }
  EXPECT_TRUE(core.blocks().idle()) << "leak, seed " << seed;
  for (size_t i = 0; i < sent.size(); ++i) {
    for (int32_t choice = 0; choice < sent[i].request->choices; ++choice) {
      const Answer& answer = sent[i].sink->answers[static_cast<size_t>(choice)];
      ASSERT_EQ(answer.finishes, 1) << "seed " << seed << " request " << i << " choice " << choice;
      if (answer.reason == FinishReason::kRefused) continue;
      coverage.hits += answer.usage.cached_tokens > 0;
      coverage.preemptions += answer.usage.preemptions;
      coverage.aborted += answer.reason == FinishReason::kAbort;
      coverage.forks += choice > 0;
      coverage.compared += std::ssize(answer.tokens);
      const Answer alone = solo(preset, setup, *sent[i].request, choice);
      const size_t n = answer.tokens.size();
      if (answer.reason == FinishReason::kAbort) {
        ASSERT_TRUE(sent[i].cancelled);
        ASSERT_LE(n, alone.tokens.size());
      } else {
        ASSERT_EQ(answer.reason, alone.reason) << "seed " << seed << " request " << i;
        ASSERT_EQ(n, alone.tokens.size()) << "seed " << seed << " request " << i << " choice " << choice;
      }
      for (size_t t = 0; t < n; ++t) {
        ASSERT_TRUE(answer.tokens[t] == alone.tokens[t] &&
                    std::memcmp(&answer.logprobs[t], &alone.logprobs[t], sizeof(float)) == 0)
            << "seed " << seed << " request " << i << " choice " << choice << " token " << t << " preemptions "
            << answer.usage.preemptions << " cached " << answer.usage.cached_tokens << " prompt "
            << sent[i].request->prompt.size() << " exact " << sent[i].request->exact << " replay "
            << setup.engine.decoder_replay << " depth " << setup.engine.depth;
      }
    }
  }
}

void run_cases(const std::string& preset, uint64_t first, uint64_t count) {
  Coverage coverage;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    run_case(preset, seed, coverage);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(coverage.hits, 0);
  EXPECT_GT(coverage.preemptions, 0);
  EXPECT_GT(coverage.aborted, 0);
  EXPECT_GT(coverage.forks, 0);
  std::printf("%lld tokens compared, %lld prefix hits, %lld preemptions, %lld aborted, %lld forks\n",
              static_cast<long long>(coverage.compared), static_cast<long long>(coverage.hits),
              static_cast<long long>(coverage.preemptions), static_cast<long long>(coverage.aborted),
              static_cast<long long>(coverage.forks));
}

TEST(Schedule, Nano) { run_cases("nano", 1, 100); }
TEST(Schedule, Slots) { run_cases("slots", 1000, 40); }

}  // namespace
}  // namespace folio
