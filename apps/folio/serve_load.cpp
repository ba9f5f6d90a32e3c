#include "serve_load.h"

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cmath>
#include <list>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "interrupt.h"
#include "json_line.h"

namespace folio {
namespace {

namespace asio = boost::asio;
using nlohmann::ordered_json;

// Streams of random numbers: words of prompts, choice of prefixes, arrivals.
constexpr uint64_t kPrefixStream = uint64_t{1} << 40, kGroupStream = uint64_t{2} << 40,
                   kArrivalStream = uint64_t{3} << 40;

constexpr std::array<std::string_view, 32> kWords = {
    "time",  "people", "water", "words", "light", "house", "world", "story", "river", "stone", "green",
    "paper", "music",  "table", "small", "large", "first", "night", "cloud", "field", "seven", "north",
    "glass", "train",  "bread", "chair", "ocean", "quiet", "sugar", "plant", "horse", "wheel"};

std::string random_words(const Workload& workload, uint64_t stream, int64_t tokens) {
  const auto count = std::max<int64_t>(1, std::llround(static_cast<double>(tokens) / workload.tokens_per_word));
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[random_bits(workload.seed, stream, static_cast<uint64_t>(i)) % kWords.size()];
  }
  return text;
}

// The text that a request shares with others of its group; the agent's is that of all.
std::string prefix_of(const Workload& workload, uint64_t request) {
  if (workload.kind == WorkloadKind::kRandom) return {};
  const uint64_t group = workload.kind == WorkloadKind::kAgent ? 0
                                                               : random_bits(workload.seed, kGroupStream, request) %
                                                                     static_cast<uint64_t>(workload.groups);
  return random_words(workload, kPrefixStream + group, workload.prefix_tokens);
}

ordered_json request_body(const Workload& workload, const ordered_json& messages, int64_t answer_tokens) {
  ordered_json body = {{"model", workload.model}};
  if (workload.chat) {
    body["messages"] = messages;
  } else {
    std::string text;
    for (const ordered_json& message : messages) text += message["content"].get_ref<const std::string&>() + "\n";
    body["prompt"] = text;
  }
  body["max_tokens"] = answer_tokens;
  body["temperature"] = 0;
  if (workload.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  body.update(workload.extra);
  return body;
}

const char* route(const Workload& workload) { return workload.chat ? "/chat/completions" : "/completions"; }

// Whether an event has output: one of the fields of a delta or choice with a string that is not empty. Within strings
// of JSON quotes are escaped, so text of the model cannot look like a field.
bool has_output(std::string_view data) {
  for (const std::string_view field : {"\"content\":", "\"text\":", "\"reasoning_content\":", "\"arguments\":"}) {
    for (size_t at = data.find(field); at != std::string_view::npos; at = data.find(field, at)) {
      at += field.size();
      while (at < data.size() && data[at] == ' ') ++at;
      if (at + 1 < data.size() && data[at] == '"' && data[at + 1] != '"') return true;
    }
  }
  return false;
}

void take_usage(const ordered_json& event, TimedAnswer& answer) {
  const auto usage = event.find("usage");
  if (usage == event.end() || !usage->is_object()) return;
  answer.prompt_tokens = usage->value("prompt_tokens", int64_t{0});
  answer.completion_tokens = usage->value("completion_tokens", int64_t{0});
  const auto details = usage->find("prompt_tokens_details");
  if (details != usage->end() && details->is_object())
    answer.cached_tokens = details->value("cached_tokens", int64_t{0});
}

// What a server says went wrong, in one line.
std::string error_of(int status, const std::string& body) {
  const ordered_json reply = ordered_json::parse(body, nullptr, false);
  if (reply.is_object() && reply.contains("error") && reply["error"].is_object()) {
    return concat(status, ": ", reply["error"].value("message", std::string()));
  }
  return concat(status, body.empty() ? "" : ": ", body.substr(0, 200));
}

// The text of an answer's events, for the next turn.
std::string text_of(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& data : events) {
    const ordered_json event = ordered_json::parse(data, nullptr, false);
    if (!event.is_object() || !event.contains("choices") || event["choices"].empty()) continue;
    const ordered_json& choice = event["choices"][0];
    const ordered_json& from = choice.contains("delta") ? choice["delta"] : choice;
    for (const char* field : {"content", "text"}) {
      const auto part = from.find(field);
      if (part != from.end() && part->is_string()) text += part->get<std::string>();
    }
  }
  return text;
}

// One request and its answer. `kept` collects the events with output if it is not null.
asio::awaitable<TimedAnswer> ask(StreamClient& client, std::string path, std::string body,
                                 std::vector<std::string>* kept) {
  TimedAnswer answer;
  bool done = false;
  answer.sent = now_seconds();
  const auto on_event = [&](std::string_view data) {
    if (has_output(data)) {
      answer.times.push_back(now_seconds());
      if (kept != nullptr) kept->emplace_back(data);
    }
    if (data == "[DONE]") {
      done = true;
    } else if (data.find("\"usage\":{") != std::string_view::npos ||
               data.find("\"usage\": {") != std::string_view::npos) {
      take_usage(ordered_json::parse(data, nullptr, false), answer);
    } else if (data.starts_with("{\"error\"")) {
      answer.error = error_of(200, std::string(data));
    }
  };
  try {
    const HttpAnswer reply = co_await client.request(std::move(path), std::move(body), on_event);
    if (reply.status != 200) {
      answer.error = error_of(reply.status, reply.body);
    } else if (!done && answer.error.empty()) {
      answer.error = "the stream ended without [DONE]";
    }
  } catch (const boost::system::system_error& error) {
    answer.error = error.code().message();
  }
  answer.ended = now_seconds();
  if (answer.completion_tokens == 0) answer.completion_tokens = std::ssize(answer.times);
  co_return answer;
}

asio::awaitable<void> sleep_for(asio::io_context& io, double seconds) {
  asio::steady_timer timer(io);
  timer.expires_after(std::chrono::nanoseconds(std::llround(1e9 * std::max(0.0, seconds))));
  co_await timer.async_wait(asio::use_awaitable);
}

// Everything of one level; lives until its io_context has run out of work.
class LevelRun {
 public:
  LevelRun(const ServerAddress& server, const Workload& workload, const Level& level, const ServeLoadOptions& options)
      : server_(server), workload_(workload), options_(options) {
    result_.level = level;
  }

  LevelResult run() {
    for (int64_t i = 0; i < options_.half_open; ++i) spawn(disturb(false));
    for (int64_t i = 0; i < options_.slow_readers; ++i) spawn(disturb(true));
    spawn(watch());
    const double start = now_seconds();
    begin_ = start + ((options_.half_open + options_.slow_readers) > 0 ? 1.0 : 0.0);
    if (result_.level.rate > 0) {
      open_ = 1;
      spawn(arrivals());
    } else {
      open_ = std::min(result_.level.concurrency, result_.level.requests);
      for (int64_t i = 0; i < open_; ++i) spawn(worker(i));
    }
    io_.run();
    result_.seconds = now_seconds() - begin_;
    check_interrupt();
    return std::move(result_);
  }

 private:
  void spawn(asio::awaitable<void> task) { asio::co_spawn(io_, std::move(task), asio::detached); }

  void close() {
    if (--open_ == 0) io_.stop();
  }

  asio::awaitable<void> watch() {
    while (!interrupted()) co_await sleep_for(io_, 0.1);
    io_.stop();
  }

  // One after the other, until none is left.
  asio::awaitable<void> worker(int64_t index) {
    const double share = static_cast<double>(index) / static_cast<double>(result_.level.concurrency);
    co_await sleep_for(io_, begin_ - now_seconds() + options_.ramp * share);
    StreamClient client(io_, server_, options_.key, options_.timeout);
    while (next_ < result_.level.requests) co_await conversation(client, static_cast<uint64_t>(next_++));
    close();
  }

  asio::awaitable<void> arrivals() {
    double due = begin_;
    for (int64_t i = 0; i < result_.level.requests; ++i) {
      due -= std::log(random_uniform(workload_.seed, kArrivalStream, static_cast<uint64_t>(i))) / result_.level.rate;
      co_await sleep_for(io_, due - now_seconds());
      while (open_ > result_.level.concurrency) co_await sleep_for(io_, 0.001);
      ++open_;
      spawn(arrival(static_cast<uint64_t>(i)));
    }
    close();
  }

  asio::awaitable<void> arrival(uint64_t request) {
    StreamClient client(io_, server_, options_.key, options_.timeout);
    co_await conversation(client, request);
    close();
  }

  // One request, or one after the other with all before in its prompt.
  asio::awaitable<void> conversation(StreamClient& client, uint64_t request) {
    const bool agent = workload_.kind == WorkloadKind::kAgent;
    ordered_json messages = ordered_json::array();
    const std::string prefix = prefix_of(workload_, request);
    if (!prefix.empty()) messages.push_back({{"role", "system"}, {"content", prefix}});
    for (int64_t turn = 0; turn < (agent ? workload_.turns : 1); ++turn) {
      const uint64_t stream = (request << 16) + static_cast<uint64_t>(turn);
      messages.push_back({{"role", "user"}, {"content", random_words(workload_, stream, workload_.prompt_tokens)}});
      std::vector<std::string> events;
      std::string path = server_.base + route(workload_);
      std::string body = json_line(request_body(workload_, messages, workload_.answer_tokens));
      TimedAnswer answer = co_await ask(client, std::move(path), std::move(body), agent ? &events : nullptr);
      answer.turn = turn;
      const bool failed = !answer.error.empty();
      result_.answers.push_back(std::move(answer));
      if (failed) break;
      messages.push_back({{"role", "assistant"}, {"content", text_of(events)}});
    }
  }

  // A client that stops reading, or that never ends its request. It lasts as long as the level.
  asio::awaitable<void> disturb(bool slow_reader) {
    asio::ip::tcp::socket& socket = sockets_.emplace_back(io_);
    ordered_json messages = ordered_json::array({{{"role", "user"}, {"content", "a long story"}}});
    const std::string body = request_body(workload_, messages, options_.slow_answer).dump();
    std::string text = concat("POST ", server_.base, route(workload_), " HTTP/1.1\r\nHost: ", server_.host,
                              "\r\nContent-Type: application/json\r\n");
    if (!options_.key.empty()) text += concat("Authorization: Bearer ", options_.key, "\r\n");
    if (slow_reader) text += concat("Content-Length: ", body.size(), "\r\n\r\n", body);
    try {
      socket.open(server_.endpoint.protocol());
      if (slow_reader) socket.set_option(asio::socket_base::receive_buffer_size(2048));
      co_await socket.async_connect(server_.endpoint, asio::use_awaitable);
      co_await asio::async_write(socket, asio::buffer(text), asio::use_awaitable);
    } catch (const boost::system::system_error& error) {
      if (result_.disturbance.empty()) result_.disturbance = error.code().message();
    }
  }

  asio::io_context io_{1};
  const ServerAddress& server_;
  const Workload& workload_;
  const ServeLoadOptions& options_;
  LevelResult result_;
  std::list<asio::ip::tcp::socket> sockets_;
  double begin_ = 0;
  int64_t next_ = 0;
  int64_t open_ = 0;  // coroutines that have requests to make
};

// One exchange outside of any level.
HttpAnswer call(const ServerAddress& server, const ServeLoadOptions& options, const std::string& path,
                const std::string& body) {
  asio::io_context io(1);
  HttpAnswer answer;
  std::string failure;
  const auto exchange = [&]() -> asio::awaitable<void> {
    StreamClient client(io, server, options.key, options.timeout);
    try {
      answer = co_await client.request(path, body);
    } catch (const boost::system::system_error& error) {
      failure = error.code().message();
    }
  };
  asio::co_spawn(io, exchange(), asio::detached);
  io.run();
  if (!failure.empty()) {
    fail(ErrorCode::kUnavailable, "no answer from ", server.host, ':', server.port, ": ", failure,
         " (is the server up?)");
  }
  if (answer.status != 200) {
    fail(ErrorCode::kInvalidArgument, path, " answers ", error_of(answer.status, answer.body));
  }
  return answer;
}

}  // namespace

std::string first_model(const ServerAddress& server, const ServeLoadOptions& options) {
  const HttpAnswer answer = call(server, options, server.base + "/models", "");
  const ordered_json models = ordered_json::parse(answer.body, nullptr, false);
  if (!models.is_object() || !models.contains("data") || models["data"].empty()) {
    fail(ErrorCode::kInvalidArgument, server.base, "/models names no model: use --served-model NAME");
  }
  return models["data"][0].value("id", std::string());
}

double measure_tokens_per_word(const ServerAddress& server, const Workload& workload, const ServeLoadOptions& options) {
  constexpr int64_t kShort = 16, kLong = 80;
  std::array<double, 2> tokens{};
  for (const int64_t words : {kShort, kLong}) {
    const ordered_json messages =
        ordered_json::array({{{"role", "user"}, {"content", random_words(workload, 0, words)}}});
    ordered_json body = request_body(workload, messages, 1);
    body["stream"] = false;
    body.erase("stream_options");
    const HttpAnswer answer = call(server, options, server.base + route(workload), body.dump());
    TimedAnswer counted;
    take_usage(ordered_json::parse(answer.body, nullptr, false), counted);
    tokens[words == kLong ? 1 : 0] = static_cast<double>(counted.prompt_tokens);
  }
  // The difference leaves out what the server puts around a prompt.
  const double each = (tokens[1] - tokens[0]) / static_cast<double>(kLong - kShort);
  return each > 0 ? each : 1;
}

LevelResult run_level(const ServerAddress& server, const Workload& workload, const Level& level,
                      const ServeLoadOptions& options) {
  return LevelRun(server, workload, level, options).run();
}

}  // namespace folio
