// The life of speculating requests (spec runtime 12.2): in exact and default mode, packed and bf16 caches, one and two
// steps in flight. Every answer is held against a plain solo run, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/scenario.h"
#include "support/sanitized.h"
#include "support/small_model.h"

namespace folio {
namespace {

void for_each_depth(Scene& scene, void (*play)(Scene&)) {
  for (const int32_t depth : {1, 2}) {
    scene.engine_config().depth = depth;
    scene.start();
    play(scene);
    scene.finish();
  }
}

const SpeculationStats& speculation(Scene& scene) { return scene.engine().core().scheduler().stats().speculation; }

void expect_verified(Scene& scene) { scene.expect(speculation(scene).drafted_tokens() > 0, "no draft was verified"); }

size_t told(Scene& scene, RequestId id) { return scene.engine().answer(id).tokens.size(); }

// Steps until a verification has given tokens to the request.
void step_past_verification(Scene& scene, RequestId id) {
  scene.step_until("a verification", [&] {
    const RequestState* state = scene.engine().state(id);
    return state == nullptr || state->usage.drafted_tokens > 0;
  });
}

void mixed_stochastic(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    Request cool = s.request(s.prompt(s.block() + 1, 70), 32), hot = s.request(s.prompt(2 * s.block() + 1, 71), 32);
    cool.sampling = {.temperature = 0.6f, .top_k = 20, .top_p = 0.9f, .seed = 5};
    hot.sampling = {.temperature = 1.1f, .seed = 6};
    hot.logprobs = 3;
    hot.choices = 2;
    s.engine().submit(std::move(cool));
    s.engine().submit(std::move(hot));
    while (!s.engine().core().empty()) {
      s.engine().step();
      s.engine().core().scheduler().reverse_running();
    }
    s.expect(told(s, 0) == 32 && told(s, 1) == 32, "not 32 tokens each");
    expect_verified(s);
  });
}

// Too few rows for everybody's drafts: widths differ within a step.
void varying_widths(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    for (uint64_t i = 0; i < 4; ++i) s.engine().submit(s.request(s.prompt(5 + static_cast<int64_t>(i), 72 + i), 40));
    s.engine().drain();
    const std::vector<int64_t>& drafted = speculation(s).drafted;
    s.expect(!drafted.empty() && drafted.back() < drafted.front(), "all verifications had one width");
  });
}

void few_rows(Scene& scene) {
  scene.engine_config().max_num_batched_tokens = scene.engine_config().max_num_seqs + 7;
  varying_widths(scene);
}

// The request is preempted right after its prefill, and again right after a verification gave it tokens.
void preempt_after(Scene& scene, bool verified) {
  for_each_depth(scene, verified ? [](Scene& s) {
    const RequestId id = s.engine().submit(s.request(s.prompt(2 * s.block() + 1, 76), 24));
    step_past_verification(s, id);
    s.step_until("preemption", [&] { return s.engine().core().scheduler().preempt_youngest(); });
    s.engine().drain();
    s.expect(told(s, id) == 24 && s.engine().answer(id).usage.preemptions == 1, "not preempted once");
    expect_verified(s);
  } : [](Scene& s) {
    const RequestId id = s.engine().submit(s.request(s.prompt(2 * s.block() + 1, 77), 24));
    s.step_until("a token", [&] { return told(s, id) >= 1; });
    s.step_until("preemption", [&] { return s.engine().core().scheduler().preempt_youngest(); });
    s.engine().core().blocks().clear_images();
    s.engine().drain();
    s.expect(told(s, id) == 24 && s.engine().answer(id).usage.preemptions == 1, "not preempted once");
    expect_verified(s);
  });
}

void preempt_after_prefill(Scene& scene) { preempt_after(scene, false); }
void preempt_after_verify(Scene& scene) { preempt_after(scene, true); }

// The same prompt again, then one that goes on from the answer: blocks that verifications filled are found.
void fork_from_answer(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    const auto prompt = s.prompt(2 * s.block() + 1, 78);
    const RequestId first = s.engine().submit(s.request(prompt, 2 * s.block()));
    s.engine().drain();
    s.engine().submit(s.request(prompt, 24));
    std::vector<int32_t> further = prompt;
    const std::vector<int32_t>& said = s.engine().answer(first).tokens;
    further.insert(further.end(), said.begin(), said.end());
    const RequestId next = s.engine().submit(s.request(further, 24));
    s.engine().drain();
    s.expect(s.engine().answer(next).usage.cached_tokens > 2 * s.block(), "the answer's blocks were not found");
    expect_verified(s);
  });
}

void abort_and_survivor(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    const RequestId survivor = s.engine().submit(s.request(s.prompt(s.block() + 1, 79), 24));
    const RequestId victim = s.engine().submit(s.request(s.prompt(s.block() + 3, 80), 3 * s.block()));
    step_past_verification(s, victim);
    s.engine().cancel(victim);
    s.engine().drain();
    s.expect(s.engine().answer(victim).reason == FinishReason::kAbort, "not aborted");
    s.expect(told(s, survivor) == 24, told(s, survivor), " tokens of the survivor");
  });
}

// A slot goes from one request to the next; the answers end at their limits within a block of drafts.
void slot_reuse_and_limits(Scene& scene) {
  scene.engine_config().max_num_seqs = 1;
  for_each_depth(scene, [](Scene& s) {
    for (int64_t most = 1; most <= 9; ++most) {
      s.engine().submit(s.request(s.prompt(s.block() + most, 81), most));
    }
    const RequestId full = s.engine().submit(s.request(s.prompt(s.context() - 7, 82), 100));
    s.engine().drain();
    for (RequestId id = 0; id < 9; ++id) {
      const Answer& answer = s.engine().answer(id);
      s.expect(std::ssize(answer.tokens) == static_cast<int64_t>(id) + 1 && answer.reason == FinishReason::kLength,
               answer.tokens.size(), " tokens of ", id + 1);
    }
    s.expect(told(s, full) == 7, told(s, full), " tokens of 7 that the context had room for");
    expect_verified(s);
  });
}

// A token of an answer that was followed by another in the same step, and its place in the answer.
struct Inside {
  std::vector<int32_t> prompt;
  int32_t id = -1;
  size_t place = 0;
};

Inside find_inside(Scene& scene) {
  for (uint64_t number = 90; number < 130; ++number) {
    scene.start();
    Inside inside{.prompt = scene.prompt(scene.block() + 2, number)};
    const RequestId id = scene.engine().submit(scene.request(inside.prompt, 48));
    for (size_t before = 0; !scene.engine().core().empty(); before = told(scene, id)) {
      scene.engine().step();
      const std::vector<int32_t>& tokens = scene.engine().answer(id).tokens;
      const auto end = tokens.begin() + static_cast<ptrdiff_t>(before);
      if (tokens.size() < before + 2 || before == 0 || std::find(tokens.begin(), end, tokens[before]) != end) continue;
      inside.id = tokens[before];
      inside.place = before;
      scene.engine().drain();
      return inside;
    }
  }
  scene.expect(false, "no draft was accepted in 40 answers");
  return {};
}

// An answer ends with the stop although its step accepted drafts behind it.
void stop_inside_block(Scene& scene) {
  const Inside inside = find_inside(scene);
  if (inside.id < 0) return;
  for (const int32_t depth : {1, 2}) {
    scene.engine_config().depth = depth;
    scene.start();
    Request request = scene.request(inside.prompt, 48);
    request.stop_ids = {inside.id};
    const RequestId id = scene.engine().submit(std::move(request));
    const RequestId beside = scene.engine().submit(scene.request(scene.prompt(9, 83), 24));
    scene.finish();
    const Answer& answer = scene.engine().answer(id);
    scene.expect(answer.reason == FinishReason::kStop && answer.tokens.size() == inside.place + 1 &&
                     answer.tokens.back() == inside.id,
                 "ends as ", finish_reason_name(answer.reason), " after ", answer.tokens.size(), " tokens instead of ",
                 inside.place + 1);
    scene.expect(told(scene, beside) == 24, "the other request noticed");
  }
}

// Rules that follow the tokens are those of a plain run at every row of a verification.
void penalties_and_limits_of_length(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    Request request = s.request(s.prompt(s.block(), 84), 40);
    request.repetition_penalty = 1.2f;
    request.frequency_penalty = 0.4f;
    request.presence_penalty = 0.3f;
    request.logprobs = 5;
    request.min_tokens = 20;
    request.ignore_eos = false;
    s.engine().submit(std::move(request));
    s.engine().drain();
    expect_verified(s);
  });
}

using Play = void (*)(Scene&);

void play(const std::string& preset, Play scenario) {
  const ModelFiles files = ModelFiles::open(test::small_model(preset));
  for (const bool packed : {true, false}) {
    if (test::kSanitized && !packed) continue;
    const ValidationOptions options{.isa = "", .cache_format = {.packed = packed, .fp8_index = !packed}, .only = ""};
    SoloRunner solo(files, Scene::sizes(files.checkpoint.config(), options));
    for (const bool exact : {true, false}) {
      ScenarioResult result;
      Scene scene(files, options, exact, solo, result);
      scene.runner_options().num_speculative_tokens = 5;
      scene.engine_config().num_speculative_tokens = 5;
      scenario(scene);
      for (const std::string& failure : result.failures) {
        ADD_FAILURE() << (exact ? "exact, " : "default, ") << (packed ? "packed: " : "bf16: ") << failure;
      }
      EXPECT_GT(result.tokens_compared, 0);
    }
  }
}

TEST(Speculation, MixedStochasticRequests) { play("nano", mixed_stochastic); }
TEST(Speculation, VaryingWidths) { play("nano", few_rows); }
TEST(Speculation, PreemptAfterPrefill) { play("nano", preempt_after_prefill); }
TEST(Speculation, PreemptAfterVerification) { play("nano", preempt_after_verify); }
TEST(Speculation, ForkFromAnAnswer) { play("nano", fork_from_answer); }
TEST(Speculation, AbortAndSurvivor) { play("nano", abort_and_survivor); }
TEST(Speculation, SlotReuseAndLimits) { play("nano", slot_reuse_and_limits); }
TEST(Speculation, StopInsideABlock) { play("nano", stop_inside_block); }
TEST(Speculation, Penalties) { play("nano", penalties_and_limits_of_length); }

}  // namespace
}  // namespace folio
