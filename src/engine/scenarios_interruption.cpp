// Scenarios about requests that are preempted or cancelled, wherever they are, and about the slots that they leave.
#include "engine/fuzz_case.h"
#include "engine/scenario.h"

namespace folio {
namespace {

// A request to be interrupted and one beside it that must not notice, in an engine of the given depth whose prefills
// take several steps. `rules`: it has rules that follow its tokens, and so never two steps in flight.
RequestId start_pair(Scene& scene, int32_t depth, bool rules = false) {
  scene.engine_config().depth = depth;
  scene.engine_config().long_prefill_token_threshold = static_cast<int32_t>(scene.block());
  EngineProbe& engine = scene.start();
  engine.submit(scene.request(scene.prompt(2 * scene.block() + 3, 20), scene.block()));
  Request request = scene.request(scene.prompt(5 * scene.block() + 2, 21), scene.block());
  if (rules) {
    request.policies.push_back(std::make_shared<CountingPolicy>(1 << 30, 1 << 30));
    request.sampling.temperature = 1;
    request.repetition_penalty = 1.2f;
    request.frequency_penalty = 0.5f;
  }
  return engine.submit(std::move(request));
}

void end_cancelled(Scene& scene, RequestId id) {
  scene.engine().drain();
  scene.expect(scene.engine().answer(id).reason == FinishReason::kAbort, "ends as ",
               finish_reason_name(scene.engine().answer(id).reason));
  scene.expect(scene.engine().answer(0).reason == FinishReason::kLength, "the other request ends as ",
               finish_reason_name(scene.engine().answer(0).reason));
  scene.finish();
}

bool between_chunks(const RequestState* state, int64_t computed) {
  return state != nullptr && state->status == RequestStatus::kRunning && state->computed >= computed &&
         state->rows_due() > 1 && state->generated() == 0;
}

// With two steps in flight a request is preempted only while none of them names it.
void preempt_youngest(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    const RequestId id = start_pair(scene, depth, depth == 2);
    scene.step_until("decode", [&] { return scene.engine().answer(id).tokens.size() >= 3; });
    scene.step_until("preemption", [&] { return scene.engine().core().scheduler().preempt_youngest(); });
    scene.finish();
    const int32_t times = scene.engine().answer(id).usage.preemptions;
    scene.expect(times == 1, times, " preemptions");
  }
}

// There is room for an image of the state: the request goes on where it stood, in decode and within its prefill, and
// runs no row again.
void preempt_and_resume(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    for (const bool decoding : {true, false}) {
      const RequestId id = start_pair(scene, depth, depth == 2);
      EngineCore& core = scene.engine().core();
      scene.step_until("its place", [&] {
        return decoding ? scene.engine().answer(id).tokens.size() >= 3
                        : between_chunks(scene.engine().state(id), 2 * scene.block());
      });
      scene.step_until("preemption", [&] { return core.scheduler().preempt_youngest(); });
      scene.finish();
      scene.expect(core.blocks().stats().resumed == 1, "resumed ", core.blocks().stats().resumed, " times");
      const Usage& usage = scene.engine().answer(id).usage;
      scene.expect(usage.preemptions == 1 && usage.plans.size() == 1, usage.plans.size(), " runs");
      const int64_t rows = core.scheduler().stats().prefill_rows, prompts = 7 * scene.block() + 5;
      scene.expect(rows <= prompts + 1, rows, " rows of prefill for ", prompts);
    }
  }
}

// The state is kept, but the pages before it are not: what the request had run runs again, under rules that follow its
// tokens.
void preempt_and_lose_pages(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    const RequestId id = start_pair(scene, depth, true);
    EngineCore& core = scene.engine().core();
    scene.step_until("decode", [&] { return scene.engine().answer(id).tokens.size() >= 3; });
    scene.step_until("preemption", [&] { return core.scheduler().preempt_youngest(); });
    core.blocks().clear_cache();
    scene.finish();
    scene.expect(core.blocks().stats().paused_lost == 1, "lost ", core.blocks().stats().paused_lost, " times");
    scene.expect(scene.engine().answer(id).usage.plans.size() == 2, "no second run");
  }
}

// No room for all that was admitted: the youngest give way until the others are done.
void preempt_for_pages(Scene& scene) {
  scene.runner_options().pages = 13;
  for (const int32_t depth : {1, 2}) {
    scene.engine_config().depth = depth;
    EngineProbe& engine = scene.start();
    for (uint64_t i = 0; i < 4; ++i)
      engine.submit(scene.request(scene.prompt(2 * scene.block() - 2, 22 + i), 3 * scene.block()));
    scene.finish();
    scene.expect(engine.core().scheduler().stats().preempted > 0, "nothing was preempted");
  }
}

void preempt_mid_prefill(Scene& scene) {
  const RequestId id = start_pair(scene, 1);
  scene.step_until("a chunk", [&] { return between_chunks(scene.engine().state(id), 2 * scene.block()); });
  scene.expect(scene.engine().core().scheduler().preempt_youngest(), "not preempted");
  scene.engine().core().blocks().clear_cache();
  scene.finish();
  scene.expect(scene.engine().answer(id).usage.plans.size() == 2, scene.engine().answer(id).usage.plans.size(),
               " runs");
}

void preempt_twice(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    const RequestId id = start_pair(scene, depth, depth == 2);
    scene.step_until("decode", [&] { return scene.engine().answer(id).tokens.size() >= 3; });
    scene.step_until("preemption", [&] { return scene.engine().core().scheduler().preempt_youngest(); });
    scene.engine().step();
    scene.step_until("second preemption", [&] { return scene.engine().core().scheduler().preempt_youngest(); });
    scene.finish();
    scene.expect(scene.engine().core().scheduler().stats().preempted == 2, "not preempted twice");
  }
}

void cancel_waiting(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    scene.engine_config().max_num_seqs = 1;
    const RequestId id = start_pair(scene, depth);
    scene.engine().step();
    scene.engine().cancel(id);
    end_cancelled(scene, id);
    scene.expect(scene.engine().answer(id).tokens.empty(), "it has tokens");
  }
}

void cancel_between_chunks(Scene& scene) {
  const RequestId id = start_pair(scene, 1);
  scene.step_until("a chunk", [&] { return between_chunks(scene.engine().state(id), 2 * scene.block()); });
  scene.engine().cancel(id);
  end_cancelled(scene, id);
}

// Its chunk has been enqueued and has not come back.
void cancel_in_a_chunk(Scene& scene) {
  const RequestId id = start_pair(scene, 2);
  scene.step_until("a chunk in flight", [&] {
    const RequestState* state = scene.engine().state(id);
    return between_chunks(state, scene.block()) && state->spans_in_flight > 0;
  });
  scene.engine().cancel(id);
  end_cancelled(scene, id);
}

// The prefill is done, the first token is not on the host yet.
void cancel_first_decode_step(Scene& scene) {
  const RequestId id = start_pair(scene, 2);
  scene.step_until("the first token in flight", [&] {
    const RequestState* state = scene.engine().state(id);
    return state != nullptr && state->generated() == 0 && state->in_flight > 0;
  });
  scene.engine().cancel(id);
  end_cancelled(scene, id);
  scene.expect(scene.engine().answer(id).tokens.empty(), "the late token was told");
}

void cancel_in_decode(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    const RequestId id = start_pair(scene, depth);
    scene.step_until("decode", [&] { return scene.engine().answer(id).tokens.size() >= 3; });
    scene.engine().cancel(id);
    end_cancelled(scene, id);
  }
}

void cancel_preempted(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    const RequestId id = start_pair(scene, depth, depth == 2);
    scene.step_until("decode", [&] { return scene.engine().answer(id).tokens.size() >= 3; });
    scene.step_until("preemption", [&] { return scene.engine().core().scheduler().preempt_youngest(); });
    scene.engine().cancel(id);
    end_cancelled(scene, id);
  }
}

void cancel_after_finish(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    const RequestId id = start_pair(scene, depth);
    scene.step_until("finish", [&] { return scene.engine().answer(id).finishes > 0; });
    scene.engine().cancel(id);
    scene.finish();
    scene.expect(scene.engine().answer(id).reason == FinishReason::kLength, "a late cancel changed the reason");
  }
}

// One slot for all: what was there is poisoned, so that a row of another request would be seen.
void slot_reuse(Scene& scene) {
  for (const int32_t depth : {1, 2}) {
    scene.engine_config().depth = depth;
    scene.engine_config().max_num_seqs = scene.runner_options().max_num_seqs = 1;
    EngineProbe& engine = scene.start();
    for (const int64_t length :
         {6 * scene.block(), int64_t{1}, scene.window() - 1, 3 * scene.block() + 1, int64_t{2}}) {
      engine.submit(scene.request(scene.prompt(length, 30 + static_cast<uint64_t>(length)), scene.window() + 3));
    }
    const RequestId cut = engine.submit(scene.request(scene.prompt(4 * scene.block(), 29), 9));
    engine.submit(scene.request(scene.prompt(3, 28), 9));
    scene.step_until("the first token of the sixth", [&] { return !engine.answer(cut).tokens.empty(); });
    engine.cancel(cut);
    scene.finish();
  }
}

}  // namespace

std::vector<Scenario> interruption_scenarios() {
  return {{"preempt-youngest", preempt_youngest},       {"preempt-for-pages", preempt_for_pages},
          {"preempt-and-resume", preempt_and_resume},   {"preempt-and-lose-pages", preempt_and_lose_pages},
          {"preempt-mid-prefill", preempt_mid_prefill}, {"preempt-twice", preempt_twice},
          {"cancel-waiting", cancel_waiting},           {"cancel-between-chunks", cancel_between_chunks},
          {"cancel-in-a-chunk", cancel_in_a_chunk},     {"cancel-first-decode-step", cancel_first_decode_step},
          {"cancel-in-decode", cancel_in_decode},       {"cancel-preempted", cancel_preempted},
          {"cancel-after-finish", cancel_after_finish}, {"slot-reuse-poisoned", slot_reuse}};
}

}  // namespace folio
