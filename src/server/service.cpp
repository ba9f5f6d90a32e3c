#include "server/service.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "protocol/field_error.h"
#include "server/fields.h"
#include "server/reply_json.h"

namespace folio {
namespace {

constexpr size_t kGrammars = 64;
constexpr size_t kStoredBytes = size_t{256} << 20;
// Requests that are read while the engine is full, beside those that it has.
constexpr size_t kMostReading = 256;
constexpr double kAbortSeconds = 5;  // that aborted requests get to end
constexpr size_t kMaxRequestId = 128;

bool starts_with_any(std::string_view path, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return path.starts_with(p); });
}

bool needs_key(std::string_view path) {
  return starts_with_any(path, {"/v1", "/beta", "/chat/completions", "/completions", "/tokenize", "/detokenize",
                                "/tokenizer_info", "/debug"});
}

ApiStyle style_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? ApiStyle::kAnthropic : ApiStyle::kOpenAi;
}

// The client's X-Request-Id, if it is short and harmless; else "".
std::string given_request_id(const HttpRequest& request) {
  const std::string_view id = request.header("X-Request-Id");
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  return plain && id.size() <= kMaxRequestId ? std::string(id) : "";
}

// "application/json", "application/x+json", with parameters, or nothing.
bool is_json_type(std::string_view type) {
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  return type.empty() || equal_ignoring_case(type, "application/json") || type.ends_with("+json");
}

// Seconds that the client gives the request in X-Request-Timeout; 0: none, or not a number.
double asked_timeout(const HttpRequest& request) {
  const std::string_view text = request.header("X-Request-Timeout");
  double seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return seconds > 0 && seconds < 1e9 ? seconds : 0;
}

// The path as a label: of an unbounded number of paths only the beginning.
std::string metric_path(const RequestRecord& record) {
  for (const std::string_view prefix : {"/v1/models/", "/v1/responses/"}) {
    if (record.path.starts_with(prefix)) return concat(prefix, "{id}");
  }
  const bool known = find_body_route(record.path) != nullptr || (record.status >= 200 && record.status < 400);
  return known ? record.path : "other";
}

// What went wrong while a request was read, for its client. To be called where an exception is handled.
ApiError current_api_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const FieldError& error) {
    return {400, error.what(), error.field()};
  } catch (const Error& error) {
    return to_api_error(error);
  } catch (const std::exception& error) {
    return {500, concat("The server failed: ", error.what())};
  }
}

}  // namespace

Service::Service(ServedModel model, Backend& backend, ServiceOptions options)
    : model_(std::move(model)),
      backend_(backend),
      options_(std::move(options)),
      keys_(options_.api_keys),
      created_(unix_seconds()),
      started_(now_seconds()),
      grammars_(*model_.tokenizer, model_.eos_token_id, kGrammars),
      responses_(options_.stored_responses, kStoredBytes),
      metrics_(model_.max_model_len),
      mailbox_([this] { server_->notify(); }),
      host_{.backend = backend_,
            .mailbox = mailbox_,
            .metrics = metrics_,
            .max_requests = options_.max_requests,
            .keep_alive_seconds = options_.keep_alive_seconds,
            .timeout_seconds = options_.timeout_seconds},
      log_(options_.access_log ? std::make_unique<LogWriter>("") : nullptr),
      request_log_(options_.request_log.empty() ? nullptr : std::make_unique<LogWriter>(options_.request_log)),
      workers_(options_.workers) {}

Service::~Service() = default;

std::vector<HttpHeader> Service::common_headers(const HttpRequest& request) const {
  std::vector<HttpHeader> headers;
  if (const std::string id = given_request_id(request); !id.empty()) headers.push_back({"X-Request-Id", id});
  if (draining_since_ > 0) headers.push_back({"Connection", "close"});
  const std::string_view origin = request.header("Origin");
  if (options_.cors_origins.empty() || origin.empty()) return headers;
  const auto listed = [&](std::string_view one) {
    return std::find(options_.cors_origins.begin(), options_.cors_origins.end(), one) != options_.cors_origins.end();
  };
  if (listed("*")) {
    headers.push_back({"Access-Control-Allow-Origin", "*"});
  } else {
    headers.push_back({"Vary", "Origin"});
    if (!listed(origin)) return headers;
    headers.push_back({"Access-Control-Allow-Origin", std::string(origin)});
  }
  headers.push_back({"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"});
  if (request.method == "OPTIONS") {
    const std::string_view asked = request.header("Access-Control-Request-Headers");
    headers.push_back({"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"});
    headers.push_back({"Access-Control-Allow-Headers", asked.empty() ? "*" : std::string(asked)});
    headers.push_back({"Access-Control-Max-Age", "600"});
  }
  return headers;
}

void Service::check_access(const HttpRequest& request) const {
  if (!needs_key(request.path) || keys_.allow(request)) return;
  throw ApiError(401, "A valid API key is needed: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\".");
}

std::shared_ptr<Exchange> Service::handle(HttpRequest request, std::shared_ptr<Responder> responder) {
  RequestRecord record;
  record.id = given_request_id(request);
  record.method = request.method;
  record.path = request.path;
  record.peer = request.peer;
  record.arrived = now_seconds();
  ReplyChannel channel(std::move(responder), style_of(request.path), common_headers(request));
  const Route* route = find_body_route(request.path);
  try {
    const bool preflight = request.method == "OPTIONS" && !options_.cors_origins.empty();
    if (!preflight) check_access(request);
    if (preflight) {
      channel.reply({.content_type = "", .body = {}, .headers = {}});
    } else if (route == nullptr) {
      channel.reply(answer_at_once(request));
    } else if (request.method != "POST") {
      channel.reply(method_not_allowed("POST"));
    } else if (!is_json_type(request.header("Content-Type"))) {
      throw ApiError(415, "Unsupported Media Type: Only 'application/json' is allowed");
    } else {
      check_capacity();
      if (route->generate != nullptr) {
        return start_session(*route, std::move(request), std::move(channel), std::move(record));
      }
      answer_on_worker(*route, std::move(request), std::move(channel), std::move(record));
      return nullptr;
    }
  } catch (...) {
    const ApiError error = current_api_error();
    record.error = error.what();
    channel.refuse(error);
  }
  record.status = channel.status();
  finish_record(std::move(record));
  return nullptr;
}

std::shared_ptr<Exchange> Service::start_session(const Route& route, HttpRequest request, ReplyChannel channel,
                                                 RequestRecord record) {
  auto session = std::make_shared<Session>(next_session_++, host_, std::move(channel), std::move(record));
  if (const double asked = asked_timeout(request); asked > 0) {
    session->set_timeout(options_.timeout_seconds > 0 ? std::min(asked, options_.timeout_seconds) : asked);
  }
  sessions_.emplace(session->number(), session);
  workers_.post([this, session, read = route.generate, request = std::move(request)]() mutable {
    std::function<void()> next;
    try {
      const Json body = parse_body(request.body);
      const auto generation = std::make_shared<Generation>(read(body, context(request)));
      log_request(generation->id, request.path, body);
      next = [session, generation] { session->start(std::move(*generation)); };
    } catch (...) {
      next = [session, error = current_api_error()] { session->refuse(error); };
    }
    request = {};  // a large body need not wait for the I/O thread
    server_->post([this, session, next = std::move(next)] {
      next();
      settle(*session);
    });
  });
  return session;
}

void Service::answer_on_worker(const Route& route, HttpRequest request, ReplyChannel channel, RequestRecord record) {
  auto answer = [this, handle = route.handle, channel = std::move(channel), record = std::move(record),
                 request = std::move(request)]() mutable {
    HttpReply reply;
    try {
      reply = handle(parse_body(request.body), context(request));
    } catch (...) {
      const ApiError error = current_api_error();
      record.error = error.what();
      reply = error_reply(error, channel.style());
    }
    server_->post([this, channel, record, reply]() mutable {
      channel.reply(std::move(reply));
      record.status = channel.status();
      finish_record(std::move(record));
    });
  };
  workers_.post(std::move(answer));
}

// Before a body is read: whether there is a place for it.
void Service::check_capacity() const {
  if (draining_since_ > 0) throw ApiError(503, "The server is shutting down.", "", 1);
  if (sessions_.size() >= static_cast<size_t>(options_.max_requests) + kMostReading) {
    throw ApiError(429, concat("The server is full: it has ", sessions_.size(), " requests. Try again later."), "", 1);
  }
}

ApiContext Service::context(const HttpRequest& request) {
  return {.model = model_, .grammars = grammars_, .responses = responses_, .request_id = given_request_id(request)};
}

void Service::log_request(const std::string& id, const std::string& path, const Json& body) {
  if (request_log_ == nullptr) return;
  request_log_->write(
      concat("{\"id\":", json_quote(id), ",\"path\":", json_quote(path), ",\"body\":", json_text(body), "}"));
}

HttpReply Service::refuse(int status, std::string_view message, std::string_view path) {
  return error_reply(ApiError(status, std::string(message)), style_of(path));
}

// Gives each session what the engine has said, then lets each send what became of it.
void Service::on_news() {
  std::vector<std::shared_ptr<Session>> touched;
  for (EngineEvent& event : mailbox_.take()) {
    const auto found = sessions_.find(event.session);
    if (found == sessions_.end()) continue;
    if (touched.empty() || touched.back() != found->second) touched.push_back(found->second);
    found->second->on_event(event);
  }
  for (const auto& session : touched) {
    session->flush();
    settle(*session);
  }
}

// Forgets a session that is done.
void Service::settle(Session& session) {
  if (!session.done() || sessions_.erase(session.number()) == 0) return;
  finish_record(session.record());
}

void Service::finish_record(RequestRecord record) {
  if (record.ended == 0) record.ended = now_seconds();
  ++metrics_.replies[{metric_path(record), record.status}];
  if (log_ != nullptr) log_->write(access_line(record, options_.log_json));
}

void Service::tick() {
  const double now = now_seconds();
  std::vector<std::shared_ptr<Session>> sessions;
  for (const auto& [number, session] : sessions_) sessions.push_back(session);
  for (const auto& session : sessions) session->on_tick(now);
  observe_steps();
  if (draining_since_ == 0) return;
  const double drained = now - draining_since_;
  if (drained > options_.drain_seconds) {
    for (const auto& session : sessions) session->abort();
  }
  const bool idle = sessions_.empty() && server_->stats().busy == 0;
  if (idle || drained > options_.drain_seconds + kAbortSeconds) server_->stop();
}

// The engine counts rows and steps; the mean of what ran since the last look stands for each of its steps.
void Service::observe_steps() {
  const EngineStats now = backend_.stats();
  const int64_t steps = now.steps - seen_.steps;
  const int64_t rows = now.prefill_rows + now.decode_rows - seen_.prefill_rows - seen_.decode_rows;
  if (steps > 0) metrics_.step_rows.observe(static_cast<double>(rows) / static_cast<double>(steps), steps);
  seen_ = now;
}

void Service::on_signal(int signal) {
  ++signals_;
  if (first_signal_ == 0) first_signal_ = signal;
  if (signals_ > 1) {
    for (const auto& [number, session] : sessions_) session->abort();
    draining_since_ = now_seconds() - options_.drain_seconds;
    return;
  }
  draining_since_ = now_seconds();
  std::fprintf(stderr, "folio: finishing %zu requests; a second signal aborts them\n", sessions_.size());
}

}  // namespace folio
