#include "engine/fuzz_load.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/engine.h"
#include "engine/fuzz_case.h"

namespace folio {
namespace {

constexpr double kTick = 0.1;  // seconds between samples

// Sanitizers keep what was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsTheProgramsOwn = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kMemoryIsTheProgramsOwn = false;
#else
constexpr bool kMemoryIsTheProgramsOwn = true;
#endif
#else
constexpr bool kMemoryIsTheProgramsOwn = true;
#endif

// Counts an answer's tokens and tells the client when it has ended.
class Waiter final : public Sink {
 public:
  explicit Waiter(int32_t choices) : unfinished_(choices) {}
  void on_token(int32_t choice, const TokenOutput& token) override {
    const std::lock_guard lock(mutex_);
    ++tokens_;
    if (choice == 0) first_.push_back(token.id);
  }
  void on_finish(int32_t, FinishReason reason, const Usage&, const std::string&) override {
    const std::lock_guard lock(mutex_);
    reasons_.push_back(reason);
    if (--unfinished_ <= 0) ended_.notify_all();
  }
  // False if it has not ended after so many seconds.
  bool wait(double seconds) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return unfinished_ <= 0; });
  }

  // When it has ended.
  int64_t tokens() const { return tokens_; }
  const std::vector<int32_t>& first() const { return first_; }  // of choice 0
  const std::vector<FinishReason>& reasons() const { return reasons_; }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int32_t unfinished_;
  int64_t tokens_ = 0;
  std::vector<int32_t> first_;
  std::vector<FinishReason> reasons_;
};

// Slots for six requests and pages for two long ones, so that prefixes are evicted and requests preempted.
FuzzCase load_case(const Config& config, const LoadOptions& options) {
  FuzzCase made;
  made.runner.isa = options.isa;
  made.runner.threads = 1;
  made.runner.block_size = std::max(Geometry::kMinBlockSize, static_cast<int32_t>(config.sliding_window));
  made.runner.max_model_len = options.max_model_len;
  made.runner.max_num_seqs = made.engine.max_num_seqs = 6;
  made.runner.max_rows = made.engine.max_num_batched_tokens = static_cast<int32_t>(config.sliding_window) + 64;
  made.runner.max_head_rows = made.runner.max_rows;
  made.runner.pages = static_cast<int32_t>(2 * options.max_model_len / made.runner.block_size);
  made.runner.num_speculative_tokens = made.engine.num_speculative_tokens = options.num_speculative_tokens;
  made.engine.depth = 2;
  return made;
}

class Load {
 public:
  Load(const ModelFiles& files, const LoadOptions& options)
      : options_(options),
        case_(load_case(files.checkpoint.config(), options)),
        runner_(files, case_.runner),
        engine_(runner_, case_.engine) {}

  LoadReport run(const std::function<bool()>& stop) {
    const double begin = now_seconds();
    std::vector<std::thread> clients;
    for (int client = 0; client < options_.clients; ++client) clients.emplace_back([this, client] { work(client); });
    for (double past = 0; past < options_.seconds && !stop(); past = now_seconds() - begin) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kTick));
      if (kMemoryIsTheProgramsOwn && past >= options_.seconds / 10) report_.resident.push_back(resident_memory());
    }
    stopping_ = true;
    for (std::thread& client : clients) client.join();
    if (report_.ok()) engine_.drain();
    report_.seconds = now_seconds() - begin;
    finish();
    return report_;
  }

 private:
  // All clients draw from the same documents, so that they share prefixes.
  void work(int client) {
    Dice shared(options_.seed), dice(options_.seed + 1 + static_cast<uint64_t>(client));
    RequestSource source(shared, case_, runner_.config());
    while (!stopping_) {
      const bool usual = dice.one_in(8);
      Request request = usual ? usual_request(source) : source.next(dice);
      const auto waiter = std::make_shared<Waiter>(request.choices);
      request.sink = waiter;
      const int32_t choices = request.choices;
      const std::vector<int32_t> prompt = request.prompt;
      const RequestId id = engine_.submit(std::make_shared<const Request>(std::move(request)));
      const bool cancels = !usual && dice.one_in(4);
      if (cancels) {
        waiter->wait(1e-3 * static_cast<double>(dice.roll(0, 40)));
        engine_.cancel(id);
      }
      if (!waiter->wait(300)) return find(concat("request ", id, " does not end"));
      count(*waiter, choices, cancels, usual);
      source.remember(prompt, waiter->first());
    }
  }

  // The same each time, and exact: so must be its answer.
  Request usual_request(const RequestSource& source) const {
    Request request;
    request.prompt = source.document();
    request.prompt.resize(std::min<size_t>(request.prompt.size(), static_cast<size_t>(options_.max_model_len / 2)));
    request.max_tokens = 12;
    request.sampling.temperature = 1;
    request.sampling.seed = options_.seed;
    request.exact = true;
    return request;
  }

  void count(const Waiter& waiter, int32_t choices, bool cancelled, bool usual) {
    const std::lock_guard lock(mutex_);
    ++report_.requests;
    report_.choices += choices;
    report_.tokens += waiter.tokens();
    if (std::ssize(waiter.reasons()) != choices) {
      report_.findings.push_back(concat(waiter.reasons().size(), " finishes of ", choices, " choices"));
    }
    for (const FinishReason reason : waiter.reasons()) {
      report_.stopped += reason == FinishReason::kStop;
      report_.cancelled += reason == FinishReason::kAbort;
      report_.refused += reason == FinishReason::kRefused;
      if (reason == FinishReason::kError) report_.findings.emplace_back("a request ended with an error");
      if (reason == FinishReason::kAbort && !cancelled) report_.findings.emplace_back("aborted, but nobody cancelled");
    }
    if (!usual) return;
    if (usual_answer_.empty()) usual_answer_ = waiter.first();
    if (usual_answer_ != waiter.first()) report_.findings.emplace_back("the usual request got another answer");
  }

  void find(const std::string& finding) {
    const std::lock_guard lock(mutex_);
    report_.findings.push_back(finding);
  }

  void finish() {
    const EngineStats stats = engine_.stats();
    report_.preempted = stats.preempted;
    report_.resumed = stats.resumed;
    report_.prefix_hit_tokens = stats.prefix_hit_tokens;
    report_.steps = stats.steps;
    if (report_.ok() && stats.slots_used > 0) find(concat(stats.slots_used, " slots are still in use"));
    if (report_.ok() && stats.pages_used > 0) find(concat(stats.pages_used, " pages are still in use"));
    if (report_.ok() && !report_.flat()) find("the memory of the process has grown");
  }

  LoadOptions options_;
  FuzzCase case_;
  ModelRunner runner_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // guards what follows while clients run
  LoadReport report_;
  std::vector<int32_t> usual_answer_;
  Engine engine_;  // last: its thread ends first
};

int64_t median(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

}  // namespace

int64_t LoadReport::median_resident() const { return median(resident); }

bool LoadReport::flat() const {
  const int64_t tenth = std::max<int64_t>(1, std::ssize(resident) / 10);
  if (std::ssize(resident) < 2 * tenth) return true;
  const int64_t first = median({resident.begin(), resident.begin() + tenth});
  const int64_t last = median({resident.end() - tenth, resident.end()});
  return last <= first + first / 20 + (int64_t{4} << 20);
}

LoadReport fuzz_load(const ModelFiles& files, const LoadOptions& options, const std::function<bool()>& stop) {
  return Load(files, options).run(stop);
}

}  // namespace folio
