#include "engine/fuzz_schedule.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "engine/engine_probe.h"
#include "engine/fuzz_case.h"

namespace folio {
namespace {

// Where a request that is being cancelled stands.
const char* place(const RequestState& state) {
  if (state.status == RequestStatus::kFinished) return "cancelled when finished";
  if (state.status == RequestStatus::kWaiting) {
    return state.usage.preemptions > 0 ? "cancelled while preempted" : "cancelled while waiting";
  }
  if (state.generated() > 0) return "cancelled in decode";
  if (state.in_flight > 0) return "cancelled with the first token in flight";
  if (state.spans_in_flight > 0) return "cancelled with a chunk in flight";
  return "cancelled between chunks";
}

// Drives one engine through one random schedule.
class Trial {
 public:
  Trial(const ModelFiles& files, const FuzzCase& fuzz_case, Dice& dice)
      : case_(fuzz_case),
        dice_(dice),
        probe_(files, fuzz_case.runner, fuzz_case.engine),
        source_(dice, fuzz_case, probe_.runner().config()) {}

  // False if it hangs.
  bool drive() {
    constexpr int kMostTicks = 6000, kMostIdle = 300;
    int idle = 0;
    for (int tick = 0; std::ssize(probe_.sent()) < case_.requests || !probe_.core().empty(); ++tick) {
      if (tick == kMostTicks || idle == kMostIdle) return false;
      if (std::ssize(probe_.sent()) < case_.requests && dice_.one_in(4)) probe_.submit(source_.next(dice_));
      if (preempt_again_ || dice_.one_in(20)) preempt();
      if (!probe_.sent().empty() && dice_.one_in(40)) cancel();
      if (dice_.one_in(10)) probe_.core().scheduler().reverse_running();
      if (dice_.one_in(100)) {
        probe_.core().blocks().clear_cache();
        ++met_["prefix caches cleared"];
      }
      idle = probe_.step() ? 0 : idle + 1;
      for (const SentRequest& sent : probe_.sent()) {
        if (!sent.sink->finished() || !remembered_.insert(sent.id).second) continue;
        source_.remember(sent.request->prompt, sent.sink->answer(0).tokens);
      }
    }
    return probe_.drain();
  }

  // After drive().
  void check(SoloRunner& solo, FuzzReport& report) {
    count();
    report.leaks = probe_.leaks();
    const AnswerCheck answers = probe_.check(solo);
    report.differences = probe_.recorder().changed_pages();
    report.differences.insert(report.differences.end(), answers.differences().begin(), answers.differences().end());
    met_["tokens compared"] += answers.tokens_compared();
    met_["pages compared"] += answers.pages_compared();
    met_["runs compared"] += answers.runs_compared();
    report.met = met_;
  }

 private:
  // Every place that a request can be at is drawn equally often, but those that end with the next step come first.
  void cancel() {
    std::map<std::string, std::vector<RequestId>> places;
    for (const auto& state : probe_.core().scheduler().states()) {
      if (!state->cancelled) places[place(*state)].push_back(state->id);
    }
    for (const SentRequest& sent : probe_.sent()) {
      if (sent.sink->finished()) places["cancelled when finished"].push_back(sent.id);
    }
    if (places.empty()) return;
    auto drawn = places.find("cancelled with the first token in flight");
    if (drawn == places.end()) drawn = places.find("cancelled while preempted");
    if (drawn == places.end()) drawn = std::next(places.begin(), dice_.roll(0, std::ssize(places) - 1));
    const RequestId victim = dice_.pick(drawn->second);
    ++met_[drawn->first];
    probe_.cancel(victim);
  }

  void preempt() {
    const bool again = preempt_again_;
    preempt_again_ = false;
    if (!probe_.core().scheduler().preempt_youngest()) return;
    ++met_[again ? "forced preemptions in a row" : "forced preemptions"];
    preempt_again_ = dice_.one_in(3);
    // What was kept of it is lost.
    if (dice_.one_in(4)) probe_.core().blocks().clear_cache();
  }

  bool follows_tokens(const RunRecord& run) const {
    const Request& request = *probe_.sent()[static_cast<size_t>(run.id)].request;
    return request.frequency_penalty != 0 || request.presence_penalty != 0 || request.repetition_penalty != 1;
  }

  void count_lengths(const SpeculationStats& speculation) {
    if (case_.engine.num_speculative_tokens == 0) return;
    ++met_[case_.engine.profile != nullptr ? "schedules with dynamic verification"
                                           : "schedules with fixed verification"];
    if (case_.engine.profile == nullptr) return;
    met_["steps without drafting since it did not pay"] += speculation.skipped_steps;
    const auto width = static_cast<size_t>(case_.engine.num_speculative_tokens);
    for (size_t length = 0; length < speculation.lengths.size() && length < width; ++length) {
      met_[length == 0 ? "blocks of drafts left out" : "blocks of drafts cut short"] += speculation.lengths[length];
    }
  }

  void count() {
    const Scheduler::Stats& stats = probe_.core().scheduler().stats();
    const BlockManager& blocks = probe_.core().blocks();
    met_["requests"] += std::ssize(probe_.sent());
    met_["preemptions"] += stats.preempted;
    met_["states kept of preempted requests"] += blocks.stats().paused;
    met_["preempted requests resumed from their state"] += blocks.stats().resumed;
    met_["kept states lost"] += blocks.stats().paused_lost;
    met_["verifications"] += stats.speculation.verifications;
    count_lengths(stats.speculation);
    met_["drafts accepted"] += stats.speculation.accepted_tokens();
    met_["drafts rejected"] += stats.speculation.drafted_tokens() - stats.speculation.accepted_tokens();
    met_["aborted"] += stats.aborted;
    met_["refused"] += stats.refused;
    met_["images kept"] += blocks.images().stats().kept;
    met_["images restored"] += blocks.images().stats().restored;
    met_["images evicted"] += blocks.images().stats().evicted;
    met_["blocks evicted"] += blocks.index().stats().evicted;
    const auto& runs = probe_.recorder().runs();
    for (const RunRecord& run : runs) {
      const int64_t prompt = std::ssize(probe_.sent()[static_cast<size_t>(run.id)].request->prompt);
      const bool replays = replays_encoder(run.plan);
      if (replays) ++met_["hits by encoder replay"];
      if (replays && run.plan.resume == case_.runner.block_size) ++met_["hits of one block"];
      if (replays && run.plan.resume + 1 == prompt) ++met_["hits of all but one token"];
      if (run.plan.resume > 0 && !replays) ++met_["hits by image"];
      if (run.plan.decoder_start > 0) ++met_["decoder tails"];
      if (run.plan.known > prompt) ++met_["runs that went on after a preemption"];
      if (run.plan.known > prompt && follows_tokens(run)) ++met_["of these, under penalties"];
      met_["hits behind a hit"] += std::ranges::any_of(run.shared, [&](const RunRecord::PageOrigin& origin) {
        return replays && replays_encoder(runs[origin.run].plan);
      });
    }
    for (const SentRequest& sent : probe_.sent()) {
      for (int32_t choice = 0; choice < sent.sink->choices(); ++choice) {
        const RecordedAnswer& answer = sent.sink->answer(choice);
        if (choice > 0 && !answer.tokens.empty()) ++met_["siblings"];
        if (answer.reason == FinishReason::kStop) ++met_["stopped"];
        if (answer.reason == FinishReason::kStop &&
            (answer.usage.prompt_tokens + answer.usage.completion_tokens) % case_.runner.block_size == 0) {
          ++met_["stopped at a page border"];
        }
      }
      if (sent.request->frequency_penalty != 0 || sent.request->presence_penalty != 0) ++met_["penalties"];
      if (sent.request->repetition_penalty != 1) ++met_["repetition penalties"];
      if (sent.request->logprobs > 0) ++met_["most likely ids"];
      if (sent.request->min_tokens > 0) ++met_["answers of a least length"];
      if (sent.request->wants_prompt_rows && sent.sink->answer(0).tokens.size() > 0) ++met_["prompt rows"];
    }
  }

  const FuzzCase& case_;
  Dice& dice_;
  EngineProbe probe_;
  RequestSource source_;
  std::set<RequestId> remembered_;
  std::map<std::string, int64_t> met_;
  bool preempt_again_ = false;
};

}  // namespace

void FuzzReport::add(const FuzzReport& other) {
  cases += other.cases;
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(differences, other.differences);
  append(leaks, other.leaks);
  append(hangs, other.hangs);
  for (const auto& [what, count] : other.met) met[what] += count;
}

ScheduleFuzzer::ScheduleFuzzer(const ModelFiles& files, const FuzzOptions& options)
    : files_(files), options_(options) {}
ScheduleFuzzer::~ScheduleFuzzer() = default;

SoloRunner& ScheduleFuzzer::solo(int32_t block_size, CacheFormat format) {
  auto& runner = solos_[{block_size, format}];
  if (runner == nullptr) {
    RunnerOptions options;
    options.isa = options_.isa;
    options.threads = 1;
    options.max_model_len = options_.max_model_len;
    options.block_size = block_size;
    options.cache_format = format;
    runner = std::make_unique<SoloRunner>(files_, options);
  }
  return *runner;
}

FuzzReport ScheduleFuzzer::run(uint64_t seed) {
  Dice dice(seed);
  FuzzCase fuzz_case =
      make_fuzz_case(dice, files_.checkpoint.config(), options_.max_model_len, options_.num_speculative_tokens);
  fuzz_case.runner.isa = options_.isa;
  FuzzReport report{.cases = 1, .differences = {}, .leaks = {}, .hangs = {}, .met = {}};
  Trial trial(files_, fuzz_case, dice);
  if (trial.drive()) {
    trial.check(solo(fuzz_case.runner.block_size, fuzz_case.runner.cache_format), report);
  } else {
    report.hangs.emplace_back("the requests do not end");
  }
  for (auto* findings : {&report.differences, &report.leaks, &report.hangs}) {
    for (std::string& finding : *findings)
      finding = concat("seed ", seed, ": ", finding, " [", describe(fuzz_case), "]");
  }
  return report;
}

}  // namespace folio
