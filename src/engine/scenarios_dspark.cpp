// The life of speculating requests (spec runtime 12.2): what `folio validate dspark` plays. Every answer is held
// against a plain solo run, and after every step the slots' cursors against what has been committed.
#include <algorithm>

#include "engine/fuzz_case.h"
#include "engine/scenario.h"

namespace folio {
namespace {

const SpeculationStats& speculation(Scene& scene) { return scene.engine().core().scheduler().stats().speculation; }
size_t told(Scene& scene, RequestId id) { return scene.engine().answer(id).tokens.size(); }

// One step. With one step in flight a slot stands behind the rows that have been committed, rejected ones not counted.
void step(Scene& scene) {
  scene.engine().step();
  if (scene.engine_config().depth != 1) return;
  for (const auto& state : scene.engine().core().scheduler().states()) {
    if (state->status != RequestStatus::kRunning || state->restart) continue;
    const int64_t cursor = scene.engine().cursor(state->slot).position;
    scene.expect(cursor == state->computed, "request ", state->id, " has run ", state->computed,
                 " tokens and its cursor is at ", cursor);
  }
}

// Takes turns, each of which makes a step, until no request is left.
template <typename Turn>
void drain(Scene& scene, Turn turn) {
  for (int steps = 0; !scene.engine().core().empty() && steps < 4000; ++steps) turn();
  scene.expect(scene.engine().core().empty(), "the requests do not end");
}

void drain(Scene& scene) {
  drain(scene, [&] { step(scene); });
}

template <typename Condition>
void step_to(Scene& scene, const char* what, Condition condition) {
  bool met = condition();
  for (int steps = 0; !met && !scene.engine().core().empty() && steps < 4000; ++steps) {
    step(scene);
    met = condition();
  }
  scene.expect(met, "never came to: ", what);
}

// Steps until a verification has given tokens to the request.
void step_past_verification(Scene& scene, RequestId id) {
  step_to(scene, "a verification", [&] {
    const RequestState* state = scene.engine().state(id);
    return state == nullptr || state->usage.drafted_tokens > 0;
  });
}

void speculate_at_each_depth(Scene& scene, void (*play)(Scene&)) {
  for (const int32_t depth : {1, 2}) {
    scene.engine_config().depth = depth;
    scene.start();
    play(scene);
    drain(scene);
    scene.expect(speculation(scene).drafted_tokens() > 0, "no draft was verified");
    scene.finish();
  }
}

Request sampling(Request request, uint64_t seed) {
  request.sampling = {.temperature = 1, .seed = seed};
  return request;
}

// Drafts of which the first `right` are what comes next and the one behind them is not.
std::vector<int32_t> script(const std::vector<int32_t>& answer, size_t told, int32_t width, int32_t right,
                            int64_t vocab) {
  std::vector<int32_t> drafts;
  for (int32_t i = 0; i < width; ++i) {
    const size_t place = told + static_cast<size_t>(i);
    const int32_t next = place < answer.size() ? answer[place] : 3;
    drafts.push_back(i < right ? next : static_cast<int32_t>((next + 1) % vocab));
  }
  return drafts;
}

// Gives the request right drafts whenever it has any.
void draft_rightly(Scene& scene, RequestId id, const std::vector<int32_t>& answer) {
  RequestState* state = scene.engine().state(id);
  if (state == nullptr || state->drafts.empty()) return;
  state->drafts = script(answer, told(scene, id), scene.num_speculative_tokens(), scene.num_speculative_tokens(),
                         scene.engine().runner().config().vocab_size);
}

void mixed_stochastic(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    Request cool = s.request(s.prompt(s.block() + 1, 70), 32), hot = s.request(s.prompt(2 * s.block() + 1, 71), 32);
    cool.sampling = {.temperature = 0.6f, .top_k = 20, .top_p = 0.9f, .seed = 5};
    hot.sampling = {.temperature = 1.1f, .seed = 6};
    hot.logprobs = 3;
    hot.choices = 2;
    s.engine().submit(std::move(cool));
    s.engine().submit(std::move(hot));
    for (int steps = 0; !s.engine().core().empty() && steps < 4000; ++steps) {
      step(s);
      s.engine().core().scheduler().reverse_running();
    }
    s.expect(told(s, 0) == 32 && told(s, 1) == 32, "not 32 tokens each");
  });
}

// Verifications of other lengths beside each other and one after the other: none, all, fewer, more.
void varying_verify_lengths(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    for (uint64_t i = 0; i < 3; ++i) {
      s.engine().submit(sampling(s.request(s.prompt(s.block() + 3 * static_cast<int64_t>(i), 72 + i), 60), i));
    }
    const int32_t width = s.num_speculative_tokens();
    bool unequal = false;
    for (int tick = 0; !s.engine().core().empty() && tick < 1000; ++tick) {
      std::vector<int32_t> lengths;
      for (const auto& state : s.engine().core().scheduler().states()) {
        if (state->drafts.empty()) continue;
        const auto turn = tick + static_cast<int>(state->id);
        state->verify_length = tick < 6 ? 0 : turn % (width + 1);
        lengths.push_back(state->verify_length);
      }
      unequal = unequal || (!lengths.empty() && std::ranges::min(lengths) != std::ranges::max(lengths));
      step(s);
      if (tick % 7 == 6) s.engine().core().scheduler().reverse_running();
    }
    s.expect(unequal, "all verifications had one length");
    for (RequestId id = 0; id < 3; ++id) s.expect(told(s, id) == 60, told(s, id), " tokens of 60");
  });
}

// Too few rows for everybody's drafts.
void few_rows(Scene& scene) {
  scene.engine_config().max_num_batched_tokens = scene.engine_config().max_num_seqs + 2;
  speculate_at_each_depth(scene, [](Scene& s) {
    for (uint64_t i = 0; i < 4; ++i) s.engine().submit(s.request(s.prompt(5 + static_cast<int64_t>(i), 75 + i), 30));
  });
}

// The youngest request, `id`, is preempted now; it goes on from its kept state, or, if that is lost, runs again.
void preempt(Scene& scene, RequestId id, bool lose) {
  step_to(scene, "preemption", [&] { return scene.engine().core().scheduler().preempt_youngest(); });
  if (lose) scene.engine().core().blocks().clear_cache();
  drain(scene);
  const Usage& usage = scene.engine().answer(id).usage;
  scene.expect(told(scene, id) == 24 && usage.preemptions == 1, told(scene, id), " tokens of 24, ", usage.preemptions,
               " preemptions");
  const int64_t resumed = scene.engine().core().blocks().stats().resumed;
  scene.expect(resumed == (lose ? 0 : 1), "resumed ", resumed, " times");
}

// As soon as its prefill is done.
template <bool lose>
void preempt_after_prefill(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    const RequestId id = s.engine().submit(s.request(s.prompt(2 * s.block() + 1, 77), 24));
    step_to(s, "a token", [&] { return told(s, id) >= 1; });
    preempt(s, id, lose);
  });
}

// Right after a verification gave it tokens.
template <bool lose>
void preempt_after_verify(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    const RequestId id = s.engine().submit(sampling(s.request(s.prompt(2 * s.block() + 1, 78), 24), 3));
    step_past_verification(s, id);
    preempt(s, id, lose);
  });
}

// The same prompt again, twice at once, then one that goes on from the answer: blocks that verifications filled are
// found.
void speculating_fork(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    const auto prompt = s.prompt(2 * s.block() + 1, 79);
    const RequestId first = s.engine().submit(s.request(prompt, 2 * s.block()));
    drain(s);
    for (int i = 0; i < 2; ++i) {
      const RequestId again = s.engine().submit(s.request(prompt, 24));
      step(s);
      s.engine().core().scheduler().reverse_running();
      drain(s);
      s.expect(s.engine().answer(again).usage.cached_tokens > 0, "the prompt was not found");
    }
    std::vector<int32_t> further = prompt;
    const std::vector<int32_t>& said = s.engine().answer(first).tokens;
    further.insert(further.end(), said.begin(), said.end());
    const RequestId next = s.engine().submit(s.request(further, 24));
    drain(s);
    s.expect(s.engine().answer(next).usage.cached_tokens > 2 * s.block(), "the answer's blocks were not found");
    if (!s.exact()) return;
    s.expect(s.engine().core().blocks().images().stats().restored >= 2, "no image was restored");
  });
}

// The victim is cancelled in the step after its prefill, or when a verification has given it tokens.
template <bool after_verify>
void abort_beside_a_survivor(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    const RequestId survivor = s.engine().submit(s.request(s.prompt(s.block() + 1, 81), 24));
    const RequestId victim = s.engine().submit(s.request(s.prompt(s.block() + 3, 82), 3 * s.block()));
    if (after_verify) {
      step_past_verification(s, victim);
    } else {
      step_to(s, "a token", [&] { return told(s, victim) >= 1; });
    }
    s.engine().cancel(victim);
    drain(s);
    s.expect(s.engine().answer(victim).reason == FinishReason::kAbort, "not aborted");
    s.expect(told(s, survivor) == 24, told(s, survivor), " tokens of the survivor");
  });
}

// A slot goes from one request to the next; the answers end at their limits and at the end of the context, within
// blocks of drafts that are all right.
void slot_reuse_and_cap(Scene& scene) {
  scene.engine_config().max_num_seqs = 1;
  speculate_at_each_depth(scene, [](Scene& s) {
    for (int64_t most = 1; most <= 9; ++most) {
      const Request request = s.request(s.prompt(s.block() + most, 83), most);
      const std::vector<int32_t> answer = s.alone(request).tokens;
      const RequestId id = s.engine().submit(request);
      drain(s, [&] {
        draft_rightly(s, id, answer);
        step(s);
      });
      s.expect(
          std::ssize(s.engine().answer(id).tokens) == most && s.engine().answer(id).reason == FinishReason::kLength,
          told(s, id), " tokens of ", most);
    }
    const RequestId full = s.engine().submit(s.request(s.prompt(s.context() - 7, 84), 100));
    drain(s);
    s.expect(told(s, full) == 7, told(s, full), " tokens of 7 that the context had room for");
  });
}

// Plays a request whose answer alone, without its stops, is `answer` with right drafts only, so that whatever ends it
// does so inside an accepted block, at `place`.
void end_inside(Scene& scene, const Request& request, const std::vector<int32_t>& answer, size_t place) {
  const RequestId id = scene.engine().submit(request);
  const RequestId beside = scene.engine().submit(scene.request(scene.prompt(9, 85), 24));
  drain(scene, [&] {
    draft_rightly(scene, id, answer);
    step(scene);
  });
  const RecordedAnswer& got = scene.engine().answer(id);
  scene.expect(got.reason == FinishReason::kStop && got.tokens.size() == place + 1, "ends as ",
               finish_reason_name(got.reason), " after ", got.tokens.size(), " tokens instead of ", place + 1);
  scene.expect(got.usage.accepted_tokens >= static_cast<int64_t>(place), "the block was not accepted");
  scene.expect(told(scene, beside) == 24, "the other request noticed");
}

// The place of an accepted draft that has another one or the sample of its own row behind it.
size_t inside(const Scene& scene) { return static_cast<size_t>((scene.num_speculative_tokens() + 1) / 2); }

void stop_inside_block(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    const size_t place = inside(s);
    Request request = sampling(s.request(s.prompt(s.block() + 2, 86), 48), 0);
    std::vector<int32_t> answer;
    // A seed under which the token there comes for the first time.
    do {
      ++request.sampling.seed;
      answer = s.alone(request).tokens;
    } while (request.sampling.seed < 100 && std::find(answer.begin(), answer.begin() + static_cast<ptrdiff_t>(place),
                                                      answer[place]) != answer.begin() + static_cast<ptrdiff_t>(place));
    request.stop_ids = {answer[place]};
    end_inside(s, request, answer, place);
  });
}

void eos_inside_block(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    const size_t place = inside(s);
    Request request = s.request(s.prompt(s.block() + 2, 87), 48);
    request.ignore_eos = false;
    request.min_tokens = static_cast<int64_t>(place);
    request.logit_bias = {{.id = s.eos(), .delta = 100}};
    const std::vector<int32_t> answer = s.alone(request).tokens;
    s.expect(answer[place] == s.eos(), "the bias does not bring the end of sentence");
    end_inside(s, request, answer, place);
  });
}

// Rules that follow the tokens, and a policy that masks and stops, are those of a plain run at every row of a
// verification.
void rules_that_follow_tokens(Scene& scene) {
  speculate_at_each_depth(scene, [](Scene& s) {
    Request request = sampling(s.request(s.prompt(s.block(), 88), 40), 4);
    request.repetition_penalty = 1.2f;
    request.frequency_penalty = 0.4f;
    request.presence_penalty = 0.3f;
    request.logprobs = 5;
    request.min_tokens = 20;
    request.ignore_eos = false;
    s.engine().submit(request);
    request.policies = {std::make_shared<CountingPolicy>(30, 1 << 20, true)};
    const RequestId masked = s.engine().submit(std::move(request));
    drain(s);
    s.expect(told(s, masked) == 30, told(s, masked), " tokens of the policy's 30");
  });
}

// Which numbers of accepted drafts came at which position modulo window, page and ratio.
class Met {
 public:
  Met(int64_t positions, int32_t width)
      : width_(width), met_(static_cast<size_t>(positions), std::vector<bool>(static_cast<size_t>(width) + 1)) {}
  void count(int64_t position, int32_t accepted) {
    met_[static_cast<size_t>(position % std::ssize(met_))][static_cast<size_t>(accepted)] = true;
  }
  // One that is missing at the position; else one that leads to a position at which one is missing.
  int32_t wanted(int64_t position) const {
    if (const auto here = missing_at(position)) return *here;
    for (int32_t accepted = 0; accepted <= width_; ++accepted) {
      if (missing_at(position + accepted + 1)) return accepted;
    }
    return width_;
  }
  int64_t missing() const {
    int64_t count = 0;
    for (const auto& at : met_) count += std::ranges::count(at, false);
    return count;
  }

 private:
  std::optional<int32_t> missing_at(int64_t position) const {
    const auto& at = met_[static_cast<size_t>(position % std::ssize(met_))];
    const auto found = std::ranges::find(at, false);
    if (found == at.end()) return std::nullopt;
    return static_cast<int32_t>(found - at.begin());
  }

  int32_t width_;
  std::vector<std::vector<bool>> met_;
};

// Verifications of every number of accepted drafts at every position modulo window, page and ratio, in company.
void accept_counts(Scene& scene) {
  const int32_t width = scene.num_speculative_tokens();
  // The page is a multiple of the ratio, and as long as the window or longer.
  const int64_t positions = scene.block() % scene.window() == 0 ? scene.block() : scene.block() * scene.window();
  Met met(positions, width);
  scene.engine_config().state_checkpoint_interval = 0;  // a verification would end where an image is due
  constexpr int kMostRounds = 40;
  for (int round = 0; round < kMostRounds && met.missing() > 0; ++round) {
    scene.engine_config().depth = round == 1 ? 2 : 1;
    scene.start();
    std::vector<std::vector<int32_t>> answers;
    for (uint64_t i = 0; i < 3; ++i) {
      Request request = scene.request(scene.prompt(scene.block() / 2 + static_cast<int64_t>(3 * i) + round % 7, 89 + i),
                                      5 * scene.block());
      if (round % 3 == 1) request = sampling(std::move(request), static_cast<uint64_t>(round));
      answers.push_back(scene.alone(request).tokens);
      scene.engine().submit(std::move(request));
    }
    drain(scene, [&] {
      struct Expected {
        RequestId id;
        int64_t position;
        size_t told;
        int32_t right;
      };
      std::vector<Expected> expected;
      for (const auto& state : scene.engine().core().scheduler().states()) {
        if (state->drafts.empty() || state->in_flight > 0) continue;
        const auto& answer = answers[static_cast<size_t>(state->id)];
        const int32_t right = met.wanted(state->computed);
        const size_t before = told(scene, state->id);
        state->drafts = script(answer, before, width, right, scene.engine().runner().config().vocab_size);
        // The last tokens are not drafted.
        if (before + static_cast<size_t>(width) + 1 < answer.size()) {
          expected.push_back({state->id, state->computed, before, right});
        }
      }
      step(scene);
      if (scene.engine_config().depth != 1) return;
      for (const Expected& e : expected) {
        const auto accepted = static_cast<int32_t>(told(scene, e.id) - e.told) - 1;
        scene.expect(accepted == e.right, accepted, " drafts accepted of ", e.right, " right ones at ", e.position);
        if (accepted == e.right) met.count(e.position, accepted);
      }
    });
    scene.finish();
  }
  scene.expect(met.missing() == 0, met.missing(), " numbers of accepted drafts at some position never came");
}

}  // namespace

std::vector<Scenario> dspark_scenarios() {
  return {{"mixed-stochastic", mixed_stochastic},
          {"varying-verify-lengths", varying_verify_lengths},
          {"few-rows", few_rows},
          {"preempt-after-prefill", preempt_after_prefill<false>},
          {"preempt-after-prefill-lost", preempt_after_prefill<true>},
          {"preempt-after-verify", preempt_after_verify<false>},
          {"preempt-after-verify-lost", preempt_after_verify<true>},
          {"prefix-fork", speculating_fork},
          {"abort-and-survivor", abort_beside_a_survivor<false>},
          {"abort-after-verify", abort_beside_a_survivor<true>},
          {"slot-reuse-and-cap", slot_reuse_and_cap},
          {"stop-inside-block", stop_inside_block},
          {"eos-inside-block", eos_inside_block},
          {"rules-that-follow-tokens", rules_that_follow_tokens},
          {"accept-counts", accept_counts}};
}

}  // namespace folio
