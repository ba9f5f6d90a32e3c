// Scenarios about batches and about prefixes that requests share.
#include "engine/scenario.h"

namespace folio {
namespace {

// Two prompts in chunks, the running requests in another order after every step.
void chunked_batched_reorder(Scene& scene) {
  scene.engine_config().long_prefill_token_threshold = static_cast<int32_t>(scene.block() + 2);
  for_each_depth(scene, [](Scene& s) {
    s.engine().submit(s.request(s.prompt(6 * s.block(), 1), 4));
    s.engine().submit(s.request(s.prompt(5 * s.block() + 1, 2), 4));
    int steps = 0;
    for (; !s.engine().core().empty() && steps < 100; ++steps) {
      s.engine().core().scheduler().reverse_running();
      s.engine().step();
    }
    s.expect(s.engine().core().empty(), "not done after 100 steps");
  });
}

// Steps with prefill rows and decode rows, and without.
void prefill_and_decode(Scene& scene) {
  for (const bool mixed : {true, false}) {
    scene.engine_config().mix_prefill_and_decode = mixed;
    for_each_depth(scene, [](Scene& s) {
      s.engine().submit(s.request(s.prompt(s.block() - 1, 1), 2 * s.block()));
      s.step_until("decode", [&] { return s.engine().answer(0).tokens.size() > 1; });
      for (uint64_t i = 2; i < 5; ++i) s.engine().submit(s.request(s.prompt(4 * s.block() + 3, i), 6));
    });
  }
}

// The same prompt again: when the first is done, and twice at once.
void prefix_fork(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    const auto prompt = s.prompt(6 * s.block() + 5, 3);
    s.engine().submit(s.request(prompt, 4));
    s.engine().drain();
    const RequestId second = s.engine().submit(s.request(prompt, 4)), third = s.engine().submit(s.request(prompt, 4));
    s.engine().drain();
    for (const RequestId id : {second, third}) {
      const Usage& usage = s.engine().answer(id).usage;
      s.expect(usage.cached_tokens > 0, "request ", id, " found no prefix");
      s.expect(usage.encoder_replay == !s.exact(), "request ", id, ": encoder replay ", usage.encoder_replay);
    }
    if (s.exact()) {
      s.expect(s.engine().core().blocks().images().stats().restored >= 2, "no image was restored");
      s.expect(s.engine().answer(second).tokens == s.engine().answer(0).tokens, "a hit changed the answer");
    }
  });
}

// A prompt that goes on where others part: each finds the longest run of blocks that it shares.
void prefix_tree(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    const auto trunk = s.prompt(4 * s.block(), 4);
    s.engine().submit(s.request(trunk, 3));
    s.engine().drain();
    for (uint64_t branch = 0; branch < 3; ++branch) {
      auto prompt = trunk;
      prompt.resize(static_cast<size_t>(s.block() * static_cast<int64_t>(branch + 1)));
      const auto leaf = s.prompt(s.block() + 3, 40 + branch);
      prompt.insert(prompt.end(), leaf.begin(), leaf.end());
      const RequestId id = s.engine().submit(s.request(prompt, 3));
      s.engine().drain();
      const int64_t cached = s.engine().answer(id).usage.cached_tokens;
      // The only image inside the trunk is at the end of its first chunk.
      if (s.exact() && branch < 2) continue;
      s.expect(cached == static_cast<int64_t>(branch + 1) * s.block(), "branch ", branch, " found ", cached, " tokens");
    }
  });
}

// Pages are there, their state image is not: run again from the beginning, or, with encoder replay, from one block
// below the hit.
void missing_image(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    const auto prompt = s.prompt(4 * s.block() + 2, 5);
    s.engine().submit(s.request(prompt, 3));
    s.engine().drain();
    s.engine().core().blocks().clear_images();
    const RequestId second = s.engine().submit(s.request(prompt, 3));
    s.engine().drain();
    const Usage& usage = s.engine().answer(second).usage;
    s.expect(usage.cached_tokens == (s.exact() ? 0 : 4 * s.block()), usage.cached_tokens, " tokens were cached");
    s.expect(usage.plans[0].start == (s.exact() ? 0 : 3 * s.block()), "started at ", usage.plans[0].start);
    const PrefixIndex::Stats& found = s.engine().core().blocks().index().stats();
    const int64_t lost = found.matched_tokens - found.hit_tokens;
    s.expect(lost == (s.exact() ? 4 * s.block() : 0), lost, " tokens were lost for want of state");
    if (!s.exact()) return;
    const RequestId third = s.engine().submit(s.request(prompt, 3));
    s.engine().drain();
    s.expect(s.engine().answer(third).usage.cached_tokens > 0, "no image was kept where one was missing");
  });
}

// An exact request is served by an image, and by nothing else.
void exact_hit_with_image(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    Request request = s.request(s.prompt(5 * s.block() + 1, 6), 4);
    request.exact = true;
    s.engine().submit(request);
    s.engine().drain();
    const RequestId second = s.engine().submit(request);
    s.engine().drain();
    const Usage& usage = s.engine().answer(second).usage;
    s.expect(usage.cached_tokens == (s.exact() ? 5 * s.block() : 0), usage.cached_tokens, " tokens were cached");
    s.expect(!usage.encoder_replay, "an exact request was replayed");
    s.expect(s.engine().answer(second).tokens == s.engine().answer(0).tokens, "the answer is another");
  });
}

// Hits of one block, of all but one token, and of pages that were written behind a hit.
void encoder_replay_hit(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    const auto prompt = s.prompt(6 * s.block(), 7);
    const auto head = [&](int64_t length) { return std::vector<int32_t>(prompt.begin(), prompt.begin() + length); };
    s.engine().submit(s.request(head(4 * s.block()), 2));
    s.engine().drain();
    const RequestId one = s.engine().submit(s.request(head(s.block() + 1), 3));
    const RequestId longest = s.engine().submit(s.request(head(4 * s.block() + 1), 3));
    const RequestId behind = s.engine().submit(s.request(prompt, 3));
    s.engine().drain();
    const RequestId again = s.engine().submit(s.request(prompt, 3));
    s.engine().drain();
    const auto usage = [&](RequestId id) { return s.engine().answer(id).usage; };
    if (!s.exact()) {
      s.expect(usage(one).cached_tokens == s.block(), "a hit of one block has ", usage(one).cached_tokens, " tokens");
      s.expect(usage(longest).cached_tokens == 4 * s.block(), "the longest hit has ", usage(longest).cached_tokens);
    }
    s.expect(usage(again).cached_tokens > usage(behind).cached_tokens, "nothing was found behind a hit");
    for (const RequestId id : {longest, behind, again}) {
      s.expect(usage(id).encoder_replay == !s.exact(), "request ", id, ": encoder replay ", usage(id).encoder_replay);
    }
  });
}

// Default and exact requests over one prefix: the exact ones have the bits of a cold run.
void mixed_modes(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    const auto prompt = s.prompt(5 * s.block() + 3, 8);
    std::vector<RequestId> exact;
    for (int round = 0; round < 3; ++round) {
      Request request = s.request(prompt, 5);
      s.engine().submit(request);
      request.exact = true;
      exact.push_back(s.engine().submit(request));
      s.engine().step();
    }
    s.engine().drain();
    Request cold = s.request(prompt, 5);
    cold.exact = true;
    const SoloResult alone = s.alone(cold);
    for (const RequestId id : exact) s.expect(s.engine().answer(id).tokens == alone.tokens, "request ", id);
  });
}

void eviction_under_pressure(Scene& scene) {
  scene.runner_options().pages = 14;
  for_each_depth(scene, [](Scene& s) {
    for (uint64_t i = 0; i < 6; ++i) s.engine().submit(s.request(s.prompt(5 * s.block() + 1, 10 + i % 4), 4));
    s.engine().drain();
    s.expect(s.engine().core().blocks().index().stats().evicted > 0, "nothing was evicted");
  });
}

// Siblings: full pages shared, the last page and the state copied; more of them than there are slots.
void choices(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    for (const int64_t length : {int64_t{1}, int64_t{2}, 3 * s.block(), 3 * s.block() + 1, 2 * s.block() + 7}) {
      Request request = s.request(s.prompt(length, 9), 2 * s.block());
      request.choices = 3;
      request.sampling.temperature = 1;
      request.sampling.seed = 11;
      s.engine().submit(request);
    }
    s.engine().drain();
    for (RequestId id = 0; id < 5; ++id) {
      s.expect(s.engine().answer(id, 0).tokens != s.engine().answer(id, 1).tokens, "two choices are the same");
    }
  });
}

void prompt_rows(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    for (const int64_t length : {int64_t{1}, int64_t{2}, s.window() + 1, 5 * s.block() + 1}) {
      Request request = s.request(s.prompt(length, 12), 3);
      request.wants_prompt_rows = true;
      request.choices = 2;
      const RequestId id = s.engine().submit(request);
      s.engine().drain();
      const auto given = std::ssize(s.engine().sent()[static_cast<size_t>(id)].sink->prompt_logprobs());
      s.expect(given == length - 1, given, " log-probabilities of a prompt of ", length, " tokens");
    }
  });
}

}  // namespace

std::vector<Scenario> sharing_scenarios() {
  return {{"chunked-batched-reorder", chunked_batched_reorder},
          {"prefill-and-decode", prefill_and_decode},
          {"prefix-fork", prefix_fork},
          {"prefix-tree", prefix_tree},
          {"missing-image", missing_image},
          {"exact-hit-with-image", exact_hit_with_image},
          {"encoder-replay-hit", encoder_replay_hit},
          {"mixed-modes", mixed_modes},
          {"eviction-under-pressure", eviction_under_pressure},
          {"choices", choices},
          {"prompt-rows", prompt_rows}};
}

}  // namespace folio
