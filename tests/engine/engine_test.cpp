// The engine under several threads: every accepted request ends exactly once, with the tokens of its solo run unless it
// was cancelled; nothing hangs, whatever fails. Meant for ThreadSanitizer too.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <future>
#include <random>
#include <thread>

#include "base/error.h"
#include "support/small_model.h"

namespace folio {
namespace {

using testing::HasSubstr;

const ModelFiles& files() {
  static const ModelFiles opened = ModelFiles::open(test::small_model("nano"));
  return opened;
}

RunnerOptions runner_options() {
  RunnerOptions options;
  options.max_model_len = 192;
  options.max_num_seqs = 4;
  options.max_rows = 64;
  options.max_head_rows = 8;
  options.block_size = 32;
  options.pages = 40;
  options.threads = 1;
  return options;
}

EngineConfig engine_config() {
  EngineConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.encoder_replay = false;
  config.state_checkpoint_interval = 32;
  return config;
}

// Records one request's answers; wait() is for the threads of the test.
class Recorder final : public Sink {
 public:
  explicit Recorder(int32_t choices = 1) : tokens(static_cast<size_t>(choices)), unfinished_(choices) {}
  void on_token(int32_t choice, const TokenOutput& token) override {
    tokens[static_cast<size_t>(choice)].push_back(token.id);
    outputs.push_back({.id = token.id, .logprob = token.logprob, .top = {token.top.begin(), token.top.end()}});
    if (cancel_from_sink) cancel_from_sink();
  }
  void on_prompt_logprobs(std::span<const TokenOutput> all) override {
    for (const TokenOutput& token : all) {
      prompt.push_back({.id = token.id, .logprob = token.logprob, .top = {token.top.begin(), token.top.end()}});
    }
  }
  void on_prefill(int32_t, int64_t done, const Usage&) override { prefilled.push_back(done); }
  void on_finish(int32_t, FinishReason why, const Usage& used, const std::string& text) override {
    reason = why;
    usage = used;
    message = text;
    ++finishes;
    if (--unfinished_ == 0) done_.set_value();
  }
  void wait() { ASSERT_EQ(finished_.wait_for(std::chrono::seconds(120)), std::future_status::ready) << "hangs"; }

  struct Output {
    int32_t id = 0;
    float logprob = 0;
    std::vector<TopLogprob> top;
  };
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Output> outputs, prompt;
  std::vector<int64_t> prefilled;
  FinishReason reason = FinishReason::kLength;
  Usage usage;
  std::string message;
  std::atomic<int> finishes{0};
  std::function<void()> cancel_from_sink;

 private:
  int32_t unfinished_;
  std::promise<void> done_;
  std::future<void> finished_ = done_.get_future();
};

std::shared_ptr<Request> make_request(std::vector<int32_t> prompt, int64_t max_tokens, std::shared_ptr<Sink> sink) {
  auto request = std::make_shared<Request>();
  request->prompt = std::move(prompt);
  request->max_tokens = max_tokens;
  request->sampling.temperature = 0;
  request->ignore_eos = true;
  request->sink = std::move(sink);
  return request;
}

std::vector<int32_t> prompt_of(uint64_t seed, int64_t length) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(3 + random() % 500));
  return prompt;
}

std::vector<int32_t> solo(const std::vector<int32_t>& prompt, int64_t max_tokens) {
  ModelRunner runner(files(), runner_options());
  EngineCore core(runner, engine_config());
  const auto sink = std::make_shared<Recorder>();
  core.submit(0, make_request(prompt, max_tokens, sink));
  while (!core.empty()) core.step();
  return sink->tokens[0];
}

TEST(Engine, AnswersWithTheTokensOfASoloRun) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  const std::vector<int32_t> prompt = prompt_of(1, 100);
  const auto sink = std::make_shared<Recorder>();
  engine.submit(make_request(prompt, 12, sink));
  sink->wait();
  EXPECT_EQ(sink->reason, FinishReason::kLength);
  EXPECT_EQ(sink->tokens[0], solo(prompt, 12));
  EXPECT_EQ(sink->usage.prompt_tokens, 100);
  EXPECT_EQ(sink->usage.completion_tokens, 12);
  ASSERT_EQ(sink->usage.plans.size(), 1u);
  EXPECT_EQ(sink->usage.plans[0].decoder_start, 100 - runner.geometry().inputs().window);
  ASSERT_GE(sink->prefilled.size(), 2u);  // 100 rows in steps of 64
  EXPECT_EQ(sink->prefilled.back(), 100);
}

TEST(Engine, BadRequestsAreTheCallersFault) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  const auto sink = std::make_shared<Recorder>();
  const auto refused = [&](const auto& change, const std::string& says) {
    auto request = make_request({5, 6}, 4, sink);
    change(*request);
    try {
      engine.submit(request);
      FAIL() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  refused([](Request& r) { r.prompt.clear(); }, "empty");
  refused([](Request& r) { r.prompt.push_back(512); }, "512");
  refused([](Request& r) { r.max_tokens = 0; }, "max_tokens 0");
  refused([](Request& r) { r.choices = 0; }, "n 0");
  refused([](Request& r) { r.choices = kMaxChoices + 1; }, "n 129");
  refused([](Request& r) { r.sink = nullptr; }, "sink");
  refused([](Request& r) { r.policies.resize(2); }, "2 policies");
  refused([](Request& r) { r.sampling.temperature = -1; }, "temperature");
  refused([](Request& r) { r.sampling.top_p = 0; }, "top_p");
  refused([](Request& r) { r.sampling.min_p = 2; }, "min_p");
  refused([](Request& r) { r.sampling.top_k = -2; }, "top_k");
  engine.drain();
  EXPECT_EQ(sink->finishes, 0);
}

TEST(Engine, RulesActOnTheDraws) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  const auto answer = [&](const auto& change) {
    const auto sink = std::make_shared<Recorder>();
    auto request = make_request(prompt_of(1, 20), 12, sink);
    change(*request);
    engine.submit(request);
    sink->wait();
    return sink;
  };
  const int32_t eos = runner.config().eos_token_id;
  const auto plain = answer([](Request&) {})->tokens[0];
  EXPECT_EQ(answer([](Request& r) { r.logit_bias = {{.id = 77, .delta = 100}}; })->tokens[0],
            std::vector<int32_t>(12, 77));
  EXPECT_NE(answer([&](Request& r) { r.logit_bias = {{.id = plain[0], .delta = -100}}; })->tokens[0][0], plain[0]);

  // Four tokens, then the end that is wanted from the first on.
  const auto ends = answer([&](Request& r) {
    r.logit_bias = {{.id = eos, .delta = 100}, {.id = 50, .delta = 90}};
    r.stop_ids = {50};
    r.min_tokens = 4;
    r.ignore_eos = false;
  });
  EXPECT_EQ(ends->reason, FinishReason::kStop);
  ASSERT_EQ(ends->tokens[0].size(), 5u);
  EXPECT_EQ(ends->tokens[0][4], eos);
  for (size_t i = 0; i < 4; ++i) EXPECT_NE(ends->tokens[0][i], 50);

  // A push that some ids share, against a penalty for those that were said: nothing is said twice, nor what the prompt
  // says.
  std::vector<int32_t> few;
  const auto prompt = prompt_of(1, 20);
  for (int32_t id = 60; std::ssize(few) < 12; ++id) {
    if (std::find(prompt.begin(), prompt.end(), id) == prompt.end()) few.push_back(id);
  }
  const auto penalised = answer([&](Request& r) {
    for (int32_t id = 60; id <= few.back(); ++id) r.logit_bias.push_back({.id = id, .delta = 100});
    r.repetition_penalty = 100;
  });
  EXPECT_THAT(penalised->tokens[0], testing::UnorderedElementsAreArray(few));
}

TEST(Engine, ReportsTheMostLikelyIds) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  const auto sink = std::make_shared<Recorder>();
  auto request = make_request(prompt_of(3, 40), 6, sink);
  request->logprobs = 3;
  request->wants_prompt_rows = true;
  engine.submit(request);
  sink->wait();
  ASSERT_EQ(sink->prompt.size(), 39u);
  ASSERT_EQ(sink->outputs.size(), 6u);
  std::vector<Recorder::Output> all = sink->prompt;
  all.insert(all.end(), sink->outputs.begin(), sink->outputs.end());
  for (const Recorder::Output& output : all) {
    ASSERT_EQ(output.top.size(), 3u);
    EXPECT_GE(output.top[0].logprob, output.top[1].logprob);
    EXPECT_GE(output.top[1].logprob, output.top[2].logprob);
    EXPECT_LE(output.logprob, output.top[0].logprob);
    for (const TopLogprob& top : output.top) {
      if (top.id == output.id) {
        EXPECT_EQ(top.logprob, output.logprob);
      }
    }
  }
  for (size_t i = 0; i < 39; ++i) EXPECT_EQ(sink->prompt[i].id, request->prompt[i + 1]);
  for (const Recorder::Output& output : sink->outputs) {  // greedy
    EXPECT_EQ(output.top[0].id, output.id);
    EXPECT_EQ(output.top[0].logprob, output.logprob);
  }
}

TEST(Engine, RefusalsAreAnswers) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  const auto sink = std::make_shared<Recorder>();
  engine.submit(make_request(prompt_of(1, 192), 4, sink));
  sink->wait();
  EXPECT_EQ(sink->reason, FinishReason::kRefused);
  EXPECT_THAT(sink->message, HasSubstr("192"));
  engine.drain();
  EXPECT_EQ(engine.stats().refused, 1);
}

TEST(Engine, FullIsSaidAtOnce) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config(), 3);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    engine.submit(make_request({5, 6}, 150, sinks.back()));
  }
  const auto late = std::make_shared<Recorder>();
  try {
    engine.submit(make_request({5, 6}, 1, late));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("full: 3 of at most 3"));
  }
  engine.drain();
  EXPECT_EQ(late->finishes, 0);
  engine.submit(make_request({5, 6}, 1, late));
  late->wait();
}

TEST(Engine, ShutdownAborts) {
  ModelRunner runner(files(), runner_options());
  std::vector<std::shared_ptr<Recorder>> sinks;
  Engine engine(runner, engine_config());
  for (uint64_t i = 0; i < 12; ++i) {
    sinks.push_back(std::make_shared<Recorder>(2));
    auto request = make_request(prompt_of(i, 40), 150, sinks.back());
    request->choices = 2;
    engine.submit(request);
  }
  std::thread second([&] { engine.shutdown(); });
  engine.shutdown();
  second.join();
  engine.shutdown();
  engine.drain();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->finishes, 2);
    EXPECT_EQ(sink->reason, FinishReason::kAbort);
  }
  EXPECT_EQ(engine.stats().aborted, 24);
  EXPECT_EQ(engine.stats().slots_used, 0);
  EXPECT_THROW(engine.submit(make_request({5}, 1, sinks[0])), Error);
}

// As commands do that are interrupted, and tests that fail.
TEST(EngineCore, ARunnerServesAnotherAfterOneThatEndsAtWork) {
  ModelRunner runner(files(), runner_options());
  const std::vector<int32_t> prompt = prompt_of(31, 70);
  const auto forgotten = std::make_shared<Recorder>();
  {
    EngineCore core(runner, engine_config());
    core.submit(0, make_request(prompt, 40, forgotten));
    core.submit(1, make_request(prompt_of(32, 66), 40, std::make_shared<Recorder>()));
    while (forgotten->tokens[0].size() < 4) core.step();
    ASSERT_TRUE(core.scheduler().preempt_youngest());
    core.step();
    ASSERT_GT(core.blocks().images().stats().kept, 0);
  }
  EXPECT_EQ(forgotten->finishes, 0);
  EngineCore core(runner, engine_config());
  EXPECT_TRUE(core.blocks().idle());
  EXPECT_EQ(core.blocks().pages().vacant(), runner.options().pages);
  const auto sink = std::make_shared<Recorder>();
  core.submit(0, make_request(prompt, 12, sink));
  while (!core.empty()) core.step();
  EXPECT_EQ(sink->usage.cached_tokens, 0);
  EXPECT_EQ(sink->tokens[0], solo(prompt, 12));
}

TEST(Engine, SinkMayCancel) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  const auto sink = std::make_shared<Recorder>();
  sink->cancel_from_sink = [&] { engine.cancel(0); };
  engine.submit(make_request({5, 6, 7}, 150, sink));
  sink->wait();
  EXPECT_EQ(sink->reason, FinishReason::kAbort);
  EXPECT_LT(sink->tokens[0].size(), 5u);
  engine.cancel(0);  // finished
  engine.cancel(17);
  engine.drain();
}

// A policy that throws stands for whatever may go wrong in a step.
class Bomb final : public TokenPolicy {
 public:
  bool mask(std::span<uint64_t>) override { return false; }
  PolicyVerdict accept(int32_t) override { throw std::runtime_error("boom"); }
  void rollback(int32_t) override {}
};

TEST(Engine, FailureEndsEverything) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 8; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    auto request = make_request({5, 6, 7 + i}, 150, sinks.back());
    if (i == 2) request->policies.push_back(std::make_shared<Bomb>());
    try {
      engine.submit(request);
    } catch (const Error& error) {  // it may have failed by now
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      sinks.pop_back();
      break;
    }
  }
  for (const auto& sink : sinks) {
    sink->wait();
    EXPECT_EQ(sink->finishes, 1);
    EXPECT_EQ(sink->reason, FinishReason::kError);
    EXPECT_THAT(sink->message, HasSubstr("boom"));
  }
  engine.drain();
  try {
    engine.submit(make_request({5}, 1, std::make_shared<Recorder>()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("boom"));
  }
}

TEST(Engine, EightThreadsSubmitAndCancel) {
  constexpr int kThreads = 8, kEach = 12;
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 4; ++i) expected.push_back(solo(prompt_of(i, 50 + 20 * static_cast<int64_t>(i)), 10));

  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  std::atomic<int64_t> completed{0};
  const auto work = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < kEach; ++i) {
      const uint64_t which = random() % 4;
      const auto sink = std::make_shared<Recorder>(2);
      auto request = make_request(prompt_of(which, 50 + 20 * static_cast<int64_t>(which)), 10, sink);
      request->choices = 2;
      const RequestId id = engine.submit(request);
      const bool cancel = random() % 3 == 0;
      if (cancel) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        engine.cancel(id);
      }
      if (random() % 4 == 0) engine.stats();
      sink->wait();
      ASSERT_EQ(sink->finishes, 2);
      for (const auto& tokens : sink->tokens) {
        if (cancel) {
          ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), expected[which].begin()));
        } else {
          ASSERT_EQ(tokens, expected[which]);
          ++completed;
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  engine.drain();
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.finished, kThreads * kEach * 2);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.slots_used, 0);
  EXPECT_GT(stats.prefix_hit_tokens, 0);
  EXPECT_GT(stats.steps, 0);
  EXPECT_GT(completed, kThreads);
}

// An engine with nothing to do uses no processor time.
TEST(Engine, SleepsWhenIdle) {
  ModelRunner runner(files(), runner_options());
  Engine engine(runner, engine_config());
  const std::clock_t begin = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.15);
}

}  // namespace
}  // namespace folio
