// The server's mind: takes each request to its route, owns the sessions, and what they share.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/api_keys.h"
#include "server/http_server.h"
#include "server/routes.h"
#include "server/session.h"
#include "server/workers.h"

namespace folio {

struct ServiceOptions {
  std::string version;
  std::vector<std::string> api_keys;      // none: everybody may
  std::vector<std::string> cors_origins;  // "*": any; none: no CORS headers
  double keep_alive_seconds = 0;          // SSE comments in silent streams; 0: none
  double timeout_seconds = 0;             // of a request; 0: none. A client may ask for less
  double drain_seconds = 600;             // after SIGTERM: then what is unfinished is aborted
  int64_t max_requests = 4096;            // choices that are accepted and not finished
  int workers = 2;                        // threads that read requests
  size_t stored_responses = 1000;         // for previous_response_id
  bool access_log = true;
  bool log_json = false;
  std::string request_log;  // file for whole requests; "": none
};

class Service final : public HttpHandler {
 public:
  // `backend` must outlive it, and so must the model's tokenizer. Reads the vocabulary for grammars.
  Service(ServedModel model, Backend& backend, ServiceOptions options);
  ~Service() override;

  // Before the server runs: where the service posts work and what it stops.
  void connect(HttpServer& server) { server_ = &server; }
  // The first signal that came, 0 for none.
  int first_signal() const { return first_signal_; }

  std::shared_ptr<Exchange> handle(HttpRequest request, std::shared_ptr<Responder> responder) override;
  HttpReply refuse(int status, std::string_view message, std::string_view path) override;
  void on_news() override;
  void tick() override;
  void on_signal(int signal) override;

 private:
  std::vector<HttpHeader> common_headers(const HttpRequest& request) const;
  void check_access(const HttpRequest& request) const;
  void check_capacity() const;
  HttpReply answer_at_once(const HttpRequest& request);
  std::shared_ptr<Exchange> start_session(const Route& route, HttpRequest request, ReplyChannel channel,
                                          RequestRecord record);
  void answer_on_worker(const Route& route, HttpRequest request, ReplyChannel channel, RequestRecord record);
  ApiContext context(const HttpRequest& request);
  void log_request(const std::string& id, const std::string& path, const Json& body);
  void settle(Session& session);
  void finish_record(RequestRecord record);
  void observe_steps();
  MetricsSources sources() const;

  // Pages.
  HttpReply health();
  HttpReply version();
  HttpReply load();
  HttpReply metrics();
  HttpReply tokenizer();
  HttpReply models();
  HttpReply cache_stats();
  HttpReply spec_stats();
  HttpReply stored_response(const std::string& id, std::string_view method);

  const ServedModel model_;
  Backend& backend_;
  const ServiceOptions options_;
  const ApiKeys keys_;
  const int64_t created_;
  const double started_;
  GrammarCompiler grammars_;
  ResponseStore responses_;
  ServerMetrics metrics_;
  Mailbox mailbox_;
  SessionHost host_;
  HttpServer* server_ = nullptr;
  std::unordered_map<uint64_t, std::shared_ptr<Session>> sessions_;
  uint64_t next_session_ = 0;
  int signals_ = 0, first_signal_ = 0;
  double draining_since_ = 0;  // 0: not draining
  EngineStats seen_;           // at the last tick
  std::unique_ptr<LogWriter> log_;
  std::unique_ptr<LogWriter> request_log_;
  Workers workers_;  // last: its threads use the others
};

}  // namespace folio
