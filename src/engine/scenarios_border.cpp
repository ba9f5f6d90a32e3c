// Scenarios about lengths: where prompts and answers end.
#include <algorithm>

#include "engine/scenario.h"

namespace folio {
namespace {

// The lengths at and beside every multiple of a page, of the window and of the ratio near those.
std::vector<int64_t> border_lengths(const Scene& scene) {
  std::vector<int64_t> lengths = {1, 2, 3, 4};
  for (const int64_t unit : {scene.block(), scene.window()}) {
    for (int64_t border = unit; border <= 5 * unit; border += unit) {
      for (int64_t beside = -2; beside <= 2; ++beside) lengths.push_back(border + beside);
    }
  }
  std::ranges::sort(lengths);
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

void border_prompts(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    for (const int64_t length : border_lengths(s)) {
      s.engine().submit(s.request(s.prompt(length, 50 + static_cast<uint64_t>(length)), 3));
    }
  });
}

// The same lengths as the hit and as what follows it.
void border_hits(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    const auto longest = s.prompt(7 * s.block(), 51);
    s.engine().submit(s.request(longest, 1));
    s.engine().drain();
    for (const int64_t length : border_lengths(s)) {
      s.engine().submit(s.request({longest.begin(), longest.begin() + length}, 2));
    }
    s.engine().drain();
    s.expect(s.engine().core().blocks().index().stats().hit_tokens > 0, "nothing was found");
  });
}

void one_token(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    s.engine().submit(s.request({7}, 1));
    s.engine().submit(s.request({7}, 2 * s.block() + 3));
    s.engine().submit(s.request(s.prompt(3 * s.block(), 52), 1));
    s.engine().drain();
    s.expect(s.engine().answer(0).tokens.size() == 1 && s.engine().answer(2).tokens.size() == 1, "not one token");
  });
}

void output_limits(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    for (int64_t most = 1; most <= s.block() + 1; most += most < 4 ? 1 : s.block() - 4) {
      const RequestId id = s.engine().submit(s.request(s.prompt(s.block() - 2, 53), most));
      s.engine().drain();
      const RecordedAnswer& answer = s.engine().answer(id);
      s.expect(std::ssize(answer.tokens) == most && answer.reason == FinishReason::kLength, answer.tokens.size(),
               " tokens of ", most);
    }
    // Until the context is full, and no further.
    const RequestId full = s.engine().submit(s.request(s.prompt(s.context() - 3, 54), 100));
    const RequestId last = s.engine().submit(s.request(s.prompt(s.context() - 1, 54), 100));
    s.engine().drain();
    s.expect(s.engine().answer(full).tokens.size() == 3, s.engine().answer(full).tokens.size(), " tokens of 3");
    s.expect(s.engine().answer(last).tokens.size() == 1, s.engine().answer(last).tokens.size(), " tokens of 1");
  });
}

// The token that ends an answer is the last of a page, or the first of the next.
void stop_on_page_edge(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    for (const int64_t position : {3 * s.block() - 1, 3 * s.block()}) {
      constexpr size_t kAt = 4;
      const auto number = static_cast<uint64_t>(position);  // another prompt for each: hits would change the answer
      Request request = s.request(s.prompt(position - static_cast<int64_t>(kAt), number), kAt + 10);
      request.sampling.temperature = 1;
      // A seed under which that token comes for the first time there.
      for (request.sampling.seed = 0; request.sampling.seed < 100; ++request.sampling.seed) {
        const auto tokens = s.alone(request).tokens;
        if (std::find(tokens.begin(), tokens.begin() + kAt, tokens[kAt]) != tokens.begin() + kAt) continue;
        request.stop_ids = {tokens[kAt]};
        break;
      }
      const RequestId id = s.engine().submit(request);
      s.engine().drain();
      const RecordedAnswer& answer = s.engine().answer(id);
      s.expect(answer.reason == FinishReason::kStop && answer.tokens.size() == kAt + 1, answer.tokens.size(),
               " tokens, ends as ", finish_reason_name(answer.reason));
    }
  });
}

// The end-of-sentence token as the first of an answer, beside and at the border of a page.
void eos_on_page_edge(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    for (int64_t length = 2 * s.block() - 1; length <= 2 * s.block() + 1; ++length) {
      Request request = s.request(s.prompt(length, 56), 10);
      request.ignore_eos = false;
      request.sampling.forced = s.eos();
      const RequestId id = s.engine().submit(request);
      request.ignore_eos = true;
      const RequestId ignored = s.engine().submit(request);
      s.engine().drain();
      const RecordedAnswer& answer = s.engine().answer(id);
      s.expect(answer.reason == FinishReason::kStop && answer.tokens == std::vector<int32_t>{s.eos()}, "ends as ",
               finish_reason_name(answer.reason), " with ", answer.tokens.size(), " tokens");
      s.expect(s.engine().answer(ignored).tokens.size() == 10, "the end of sentence was not ignored");
    }
  });
}

// Decode over several windows and pages: no row is read that nobody wrote.
void long_decode(Scene& scene) {
  for_each_depth(scene, [](Scene& s) {
    s.engine().submit(s.request(s.prompt(s.block() + 1, 57), 3 * s.window() + 2 * s.block()));
    s.engine().submit(s.request(s.prompt(3 * s.block() + 1, 58), 3 * s.window() + s.block()));
  });
}

void refusals(Scene& scene) {
  scene.runner_options().pages = 5;
  for_each_depth(scene, [](Scene& s) {
    const RequestId too_long = s.engine().submit(s.request(s.prompt(s.context(), 59), 1));
    const RequestId no_pages = s.engine().submit(s.request(s.prompt(6 * s.block(), 59), 1));
    const RequestId fits = s.engine().submit(s.request(s.prompt(2 * s.block(), 59), 3));
    s.engine().drain();
    for (const RequestId id : {too_long, no_pages}) {
      s.expect(s.engine().answer(id).reason == FinishReason::kRefused, "request ", id, " was not refused");
    }
    // As in docs/admission.md.
    const std::string context = concat("the prompt has ", s.context(), " tokens and the context holds ", s.context());
    const std::string pages = concat("needs 7 pages for ", 6 * s.block(), " tokens, the pool has 5");
    s.expect(s.engine().answer(too_long).message.starts_with(context), s.engine().answer(too_long).message);
    s.expect(s.engine().answer(no_pages).message.starts_with(pages), s.engine().answer(no_pages).message);
    s.expect(s.engine().answer(fits).reason == FinishReason::kLength, "a request that fits was not served");
  });
}

}  // namespace

std::vector<Scenario> border_scenarios() {
  return {{"border-prompts", border_prompts},
          {"border-hits", border_hits},
          {"one-token", one_token},
          {"output-limits", output_limits},
          {"stop-on-page-edge", stop_on_page_edge},
          {"eos-on-page-edge", eos_on_page_edge},
          {"long-decode", long_decode},
          {"refusals", refusals}};
}

}  // namespace folio
