// folio_stub_server DIR PORT [--at-once] [--small-buffers]: the server of `folio serve` on an engine that computes
// nothing. Each answer gets a token every 20 ms, counted from its own beginning; with --at-once all answers get theirs
// at the same moments, as steps of an engine do. With --small-buffers little is held for a client that does not read,
// so that it is cut off within seconds. For measurements of the server alone (tests/clients/load_test.py).
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "server/http_server.h"
#include "server/service.h"

namespace folio {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetween{20};

class StubEngine final : public Backend {
 public:
  StubEngine(std::vector<int32_t> words, bool at_once)
      : words_(std::move(words)), at_once_(at_once), thread_([this] { loop(); }) {}
  ~StubEngine() override { stop(); }

  // Ends the thread: no sink is called any more.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  RequestId submit(std::shared_ptr<const Request> request) override {
    const std::lock_guard lock(mutex_);
    const RequestId id = next_id_++;
    stats_.running += request->choices;
    Clock::time_point first = Clock::now() + kBetween;
    if (at_once_) first -= first.time_since_epoch() % kBetween;
    due_.push({first, id});
    running_[id] = {std::move(request), 0};
    work_.notify_one();
    return id;
  }

  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(id);
    if (found != running_.end()) found->second.cancelled = true;
  }

  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  struct Running {
    std::shared_ptr<const Request> request;
    int64_t tokens = 0;
    bool cancelled = false;
  };
  using Due = std::pair<Clock::time_point, RequestId>;

  void loop() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (due_.empty()) {
        work_.wait(lock, [this] { return stop_ || !due_.empty(); });
      } else if (due_.top().first > Clock::now()) {
        work_.wait_until(lock, due_.top().first);
      } else {
        const auto [when, id] = due_.top();
        due_.pop();
        Running running = running_.at(id);
        lock.unlock();
        const bool goes_on = give_token(running);
        lock.lock();
        ++stats_.steps;
        if (goes_on) {
          running_.at(id).tokens = running.tokens;
          due_.push({when + kBetween, id});
        } else {
          stats_.running -= running.request->choices;
          stats_.finished += running.request->choices;
          running_.erase(id);
        }
      }
    }
  }

  // The next token of every choice, or the end. False at the end.
  bool give_token(Running& running) const {
    const Request& request = *running.request;
    const bool last = running.tokens + 1 >= request.max_tokens;
    Usage usage;
    usage.prompt_tokens = std::ssize(request.prompt);
    usage.completion_tokens = running.tokens + (running.cancelled ? 0 : 1);
    for (int32_t choice = 0; choice < request.choices; ++choice) {
      if (!running.cancelled) {
        const auto word = static_cast<size_t>(running.tokens) % words_.size();
        request.sink->on_token(choice, {.id = words_[word], .logprob = -1, .top = {}});
      }
      if (running.cancelled || last) {
        request.sink->on_finish(choice, running.cancelled ? FinishReason::kAbort : FinishReason::kLength, usage, "");
      }
    }
    ++running.tokens;
    return !running.cancelled && !last;
  }

  const std::vector<int32_t> words_;
  const bool at_once_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable work_;
  std::unordered_map<RequestId, Running> running_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  EngineStats stats_;
  RequestId next_id_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

void serve(const char* dir, uint16_t port, bool at_once, bool small_buffers) {
  const Tokenizer tokenizer = Tokenizer::load(dir);
  StubEngine engine(tokenizer.encode("the light of a quiet river"), at_once);
  ServedModel model;
  model.names = {"stub"};
  model.root = dir;
  model.tokenizer = &tokenizer;
  model.vocab_size = tokenizer.vocab_size();
  model.max_model_len = int64_t{1} << 20;
  model.block_size = 128;
  model.thinking.on = false;
  ServiceOptions options;
  options.version = "stub";
  options.access_log = false;
  Service service(std::move(model), engine, options);
  HttpOptions http;
  http.port = port;
  if (small_buffers) {
    http.limits.send_buffer_bytes = 8 << 10;
    http.limits.max_buffered_bytes = 32 << 10;
  }
  HttpServer server(http, service);
  service.connect(server);
  server.run();
  engine.stop();  // before the service that its sinks write to
}

}  // namespace
}  // namespace folio

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: folio_stub_server DIR PORT [--at-once] [--small-buffers]\n");
    return 2;
  }
  const auto has = [&](const char* flag) {
    return std::any_of(argv + 3, argv + argc, [&](const char* given) { return std::strcmp(given, flag) == 0; });
  };
  try {
    folio::serve(argv[1], static_cast<uint16_t>(std::atoi(argv[2])), has("--at-once"), has("--small-buffers"));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "folio_stub_server: %s\n", error.what());
    return 1;
  }
}
