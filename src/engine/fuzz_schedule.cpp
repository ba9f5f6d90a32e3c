#include "engine/fuzz_schedule.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "engine/engine_core.h"
#include "engine/fuzz_case.h"
#include "engine/fuzz_check.h"

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
        runner_(files, fuzz_case.runner),
        core_(runner_, fuzz_case.engine),
        recorder_(runner_),
        source_(dice, fuzz_case, runner_.config()) {
    core_.blocks().watch(&recorder_);
  }

  // False if it hangs.
  bool drive() {
    constexpr int kMostTicks = 6000, kMostIdle = 300;
    int idle = 0;
    for (int tick = 0; std::ssize(sent_) < case_.requests || !core_.empty(); ++tick) {
      if (tick == kMostTicks || idle == kMostIdle) return false;
      if (std::ssize(sent_) < case_.requests && dice_.one_in(4)) arrive();
      if (preempt_again_ || dice_.one_in(20)) preempt();
      if (!sent_.empty() && dice_.one_in(40)) cancel();
      if (dice_.one_in(10)) core_.scheduler().reverse_running();
      if (dice_.one_in(100)) {
        core_.blocks().clear_cache();
        ++met_["prefix caches cleared"];
      }
      idle = core_.step() ? 0 : idle + 1;
      for (const SentRequest& sent : sent_) {
        if (!sent.sink->finished() || !remembered_.insert(sent.id).second) continue;
        source_.remember(sent.request->prompt, sent.sink->answer(0).tokens);
      }
    }
    while (core_.step()) {
    }
    return true;
  }

  // After drive().
  std::vector<std::string> leaks() {
    std::vector<std::string> found;
    if (!core_.blocks().idle()) found.emplace_back("a page or a slot is still in use");
    recorder_.check_published_pages();
    core_.blocks().clear_cache();
    while (core_.step()) {
    }
    const int32_t vacant = runner_.pages().vacant(), pages = runner_.pages().capacity();
    if (vacant != pages) found.push_back(concat(pages - vacant, " pages are not vacant after the cache was cleared"));
    if (core_.blocks().images().size() > 0) found.push_back(concat(core_.blocks().images().size(), " images are left"));
    return found;
  }

  void check(SoloRunner& solo, FuzzReport& report) {
    report.differences = recorder_.changed_pages();
    AnswerCheck answers(solo, recorder_,
                        {.eos = runner_.config().eos_token_id,
                         .max_model_len = runner_.max_model_len(),
                         .compare_pages = case_.engine.poison});
    answers.check(sent_);
    report.differences.insert(report.differences.end(), answers.differences().begin(), answers.differences().end());
    met_["tokens compared"] += answers.tokens_compared();
    met_["pages compared"] += answers.pages_compared();
    met_["runs compared"] += answers.runs_compared();
    count();
    report.met = met_;
  }

 private:
  void arrive() {
    auto request = source_.next(dice_);
    auto sink = std::make_shared<AnswerSink>(request->choices);
    request->sink = sink;
    const auto id = static_cast<RequestId>(sent_.size());
    core_.submit(id, request);
    sent_.push_back({.id = id, .request = request, .sink = sink});
  }

  // Every place that a request can be at is drawn equally often.
  void cancel() {
    std::map<std::string, std::vector<RequestId>> places;
    for (const auto& state : core_.scheduler().states()) {
      if (!state->cancelled) places[place(*state)].push_back(state->id);
    }
    for (const SentRequest& sent : sent_) {
      if (sent.sink->finished()) places["cancelled when finished"].push_back(sent.id);
    }
    if (places.empty()) return;
    auto drawn = places.find("cancelled while preempted");  // rare: it ends with the next step
    if (drawn == places.end()) drawn = std::next(places.begin(), dice_.roll(0, std::ssize(places) - 1));
    const RequestId victim = dice_.pick(drawn->second);
    ++met_[drawn->first];
    core_.cancel(victim);
    sent_[static_cast<size_t>(victim)].cancelled = true;
  }

  void preempt() {
    const bool again = preempt_again_;
    preempt_again_ = false;
    if (!core_.scheduler().preempt_youngest()) return;
    ++met_[again ? "forced preemptions in a row" : "forced preemptions"];
    preempt_again_ = dice_.one_in(3);
  }

  void count() {
    const Scheduler::Stats& stats = core_.scheduler().stats();
    met_["requests"] += std::ssize(sent_);
    met_["preemptions"] += stats.preempted;
    met_["aborted"] += stats.aborted;
    met_["refused"] += stats.refused;
    met_["images kept"] += core_.blocks().images().stats().kept;
    met_["images restored"] += core_.blocks().images().stats().restored;
    met_["images evicted"] += core_.blocks().images().stats().evicted;
    met_["blocks evicted"] += core_.blocks().index().stats().evicted;
    const auto& runs = recorder_.runs();
    std::map<std::pair<RequestId, int32_t>, bool> answered_behind_hit;
    for (const RunRecord& run : runs) {
      const int64_t prompt = std::ssize(sent_[static_cast<size_t>(run.id)].request->prompt);
      const bool replays = replays_encoder(run.plan);
      if (replays) ++met_["hits by encoder replay"];
      if (replays && run.plan.resume == case_.runner.block_size) ++met_["hits of one block"];
      if (replays && run.plan.resume + 1 == prompt) ++met_["hits of all but one token"];
      if (run.plan.resume > 0 && !replays) ++met_["hits by image"];
      if (run.plan.decoder_start > 0) ++met_["decoder tails"];
      if (run.plan.known > prompt) ++met_["runs that went on after a preemption"];
      met_["hits behind a hit"] += std::ranges::any_of(run.shared, [&](const RunRecord::PageOrigin& origin) {
        return replays && replays_encoder(runs[origin.run].plan);
      });
    }
    for (const SentRequest& sent : sent_) {
      for (int32_t choice = 0; choice < sent.sink->choices(); ++choice) {
        const Answer& answer = sent.sink->answer(choice);
        if (choice > 0 && !answer.tokens.empty()) ++met_["siblings"];
        if (answer.reason == FinishReason::kStop) ++met_["stopped"];
        if (answer.reason == FinishReason::kStop &&
            (answer.usage.prompt_tokens + answer.usage.completion_tokens) % case_.runner.block_size == 0) {
          ++met_["stopped at a page border"];
        }
      }
      if (sent.request->wants_prompt_rows && sent.sink->answer(0).tokens.size() > 0) ++met_["prompt rows"];
    }
  }

  const FuzzCase& case_;
  Dice& dice_;
  ModelRunner runner_;
  EngineCore core_;
  RunRecorder recorder_;
  RequestSource source_;
  std::vector<SentRequest> sent_;
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

SoloRunner& ScheduleFuzzer::solo(int32_t block_size, bool packed) {
  auto& runner = solos_[{block_size, packed}];
  if (runner == nullptr) {
    RunnerOptions options;
    options.isa = options_.isa;
    options.threads = 1;
    options.max_model_len = options_.max_model_len;
    options.block_size = block_size;
    options.packed_cache = packed;
    runner = std::make_unique<SoloRunner>(files_, options);
  }
  return *runner;
}

FuzzReport ScheduleFuzzer::run(uint64_t seed) {
  Dice dice(seed);
  FuzzCase fuzz_case = make_fuzz_case(dice, files_.checkpoint.config(), options_.max_model_len);
  fuzz_case.runner.isa = options_.isa;
  FuzzReport report{.cases = 1, .differences = {}, .leaks = {}, .hangs = {}, .met = {}};
  Trial trial(files_, fuzz_case, dice);
  if (trial.drive()) {
    report.leaks = trial.leaks();
    trial.check(solo(fuzz_case.runner.block_size, fuzz_case.runner.packed_cache), report);
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
