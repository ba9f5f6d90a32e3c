#include "engine/solo_run.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace folio {
namespace {

RunnerOptions solo_options(const ModelFiles& files, RunnerOptions options) {
  options.max_model_len = context_length(files.checkpoint.config(), options.max_model_len);
  options.max_num_seqs = 1;
  options.pages = 0;
  options.max_rows = static_cast<int32_t>(options.max_model_len);
  options.max_head_rows = options.max_rows;
  return options;
}

}  // namespace

PageBytes read_page(ModelRunner& runner, int32_t page) {
  PageBytes bytes;
  for (const MemoryRange& range : runner.geometry().page_ranges(page)) {
    const size_t end = bytes.size();
    bytes.resize(end + static_cast<size_t>(range.bytes));
    runner.device().download(bytes.data() + end, runner.pages().data() + range.offset, range.bytes);
  }
  runner.device().record()->wait();
  return bytes;
}

void write_page(ModelRunner& runner, int32_t page, const PageBytes& bytes) {
  const std::byte* from = bytes.data();
  for (const MemoryRange& range : runner.geometry().page_ranges(page)) {
    FOLIO_CHECK(from + range.bytes <= bytes.data() + bytes.size(), "a page of another geometry");
    runner.device().upload(runner.pages().data() + range.offset, from, range.bytes);
    from += range.bytes;
  }
  runner.device().record()->wait();
}

void poison_memory(ModelRunner& runner) {
  runner.device().fill(runner.pages().data(), 0xff, runner.pages().bytes());
  runner.device().fill(runner.states().data(), 0xff, runner.states().bytes());
}

SoloRunner::SoloRunner(const ModelFiles& files, RunnerOptions options)
    : runner_(files, solo_options(files, std::move(options))) {}

// Samples the row added last: generated token `index`.
void SoloRunner::sample(const SoloRun& run, const LogitLists& lists, int64_t index) {
  SamplingParams params = run.request->sampling;
  params.seed += static_cast<uint64_t>(run.choice);
  runner_.builder().add_sampled_row(params);
  lists.add_to(runner_.builder(), index, runner_.config().eos_token_id, run.policy);
}

void SoloRunner::build_first(const SoloRun& run, const LogitLists& lists, int32_t slot,
                             std::span<const int32_t> pages) {
  const bool replays = replays_encoder(run.plan);
  const int64_t start = replays ? run.plan.start : 0, known = std::ssize(run.tokens);
  RequestSpan span{.slot = slot, .restart = 1, .start = static_cast<int32_t>(start)};
  for (int64_t lag = 0; lag < std::min<int64_t>(kMaxEngramHistory, start); ++lag) {
    span.history[lag] = run.tokens[static_cast<size_t>(start - 1 - lag)];
  }
  span.window_floor = static_cast<int32_t>(start);
  span.decoder_start = static_cast<int32_t>(run.plan.decoder_start);
  span.write_from = static_cast<int32_t>(replays ? run.plan.resume : 0);
  StepBuilder& builder = runner_.builder();
  builder.clear();
  builder.add_request(span, pages);
  for (int64_t p = start; p < known; ++p) {
    builder.add_row({.value = run.tokens[static_cast<size_t>(p)]}, false, p >= run.plan.decoder_start);
    if (p + 1 == known) {
      sample(run, lists, known - run.prompt_length);
    } else if (run.request->wants_prompt_rows && p + 1 < run.prompt_length) {
      builder.add_sampled_row({.forced = run.tokens[static_cast<size_t>(p + 1)]}, false);
      if (run.request->logprobs > 0) builder.report_top(run.request->logprobs);
    }
  }
}

SoloResult SoloRunner::run(const SoloRun& run) {
  const int64_t known = std::ssize(run.tokens), ends = known + run.samples - 1;
  FOLIO_CHECK(known > 0 && run.samples > 0 && ends <= runner_.max_model_len());
  poison_memory(runner_);
  const int32_t slot = *runner_.states().ids().allocate();
  std::vector<int32_t> pages;
  while (std::ssize(pages) < runner_.geometry().pages_for(ends)) pages.push_back(*runner_.pages().allocate());
  if (replays_encoder(run.plan)) {
    FOLIO_CHECK(std::ssize(run.shared) == runner_.geometry().pages_for(run.plan.resume));
    for (size_t i = 0; i < run.shared.size(); ++i) write_page(runner_, pages[i], *run.shared[i]);
  }

  LogitLists lists(*run.request);
  for (int64_t i = run.prompt_length; i < known; ++i) lists.take(run.tokens[static_cast<size_t>(i)]);
  SoloResult result;
  const auto take_top = [&](const StepOutputs& outputs, int64_t row, std::vector<TopLogprob>& to) {
    const TopLogprob* top = outputs.top + row * kMaxTopLogprobs;
    to.insert(to.end(), top, top + run.request->logprobs);
  };
  build_first(run, lists, slot, pages);
  StepOutputs outputs = runner_.run();
  const int32_t heads = runner_.builder().step().inputs.num_head_rows;
  result.prompt_logprobs.assign(outputs.logprobs, outputs.logprobs + heads - 1);
  for (int32_t row = 0; row + 1 < heads; ++row) take_top(outputs, row, result.prompt_top);
  int64_t ran = known, last = heads - 1;
  while (true) {
    result.tokens.push_back(outputs.sampled[last]);
    result.logprobs.push_back(outputs.logprobs[last]);
    take_top(outputs, last, result.top);
    if (std::ssize(result.tokens) == run.samples || (run.stops && run.stops(result.tokens.back()))) break;
    lists.take(result.tokens.back());
    StepBuilder& builder = runner_.builder();
    builder.clear();
    builder.add_request({.slot = slot,
                         .window_floor = static_cast<int32_t>(replays_encoder(run.plan) ? run.plan.start : 0),
                         .decoder_start = static_cast<int32_t>(run.plan.decoder_start)},
                        pages);
    builder.add_row({.value = result.tokens.back()});
    sample(run, lists, known - run.prompt_length + std::ssize(result.tokens));
    outputs = runner_.run();
    last = 0;
    ++ran;
  }
  for (int64_t i = 0; i < runner_.geometry().pages_for(ran); ++i) {
    result.pages.push_back(read_page(runner_, pages[static_cast<size_t>(i)]));
  }
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) runner_.pages().release(*page);
  runner_.states().ids().release(slot);
  return result;
}

}  // namespace folio
