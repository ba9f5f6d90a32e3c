// What the service says about itself: health, models, metrics, the built-in page.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "server/model_routes.h"
#include "server/reply_json.h"
#include "server/service.h"
#include "server/web/web_page.h"

namespace folio {
namespace {

HttpReply web_reply(const WebFile& file, const HttpRequest& request) {
  HttpReply reply{.content_type = std::string(file.content_type), .body = std::string(file.body), .headers = {}};
  reply.headers = {{"Content-Security-Policy", std::string(kWebSecurityPolicy)},
                   {"ETag", std::string(file.etag)},
                   {"Cache-Control", "no-cache"},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"}};
  if (request.header("If-None-Match") == file.etag) {
    reply.status = 304;
    reply.body.clear();
  }
  return reply;
}

}  // namespace

// Requests without a JSON body.
HttpReply Service::answer_at_once(const HttpRequest& request) {
  struct Page {
    std::string_view path;
    HttpReply (Service::*answer)();
  };
  static constexpr auto kPages = std::to_array<Page>({{"/health", &Service::health},
                                                      {"/ping", &Service::health},
                                                      {"/version", &Service::version},
                                                      {"/load", &Service::load},
                                                      {"/metrics", &Service::metrics},
                                                      {"/tokenizer_info", &Service::tokenizer},
                                                      {"/v1/models", &Service::models},
                                                      {"/debug/cache_stats", &Service::cache_stats},
                                                      {"/debug/spec_stats", &Service::spec_stats},
                                                      {"/debug/mtp_stats", &Service::spec_stats}});
  const std::string_view path = request.path;
  const bool get = request.method == "GET" || request.method == "HEAD";
  const auto page = std::find_if(kPages.begin(), kPages.end(), [&](const Page& p) { return p.path == path; });
  if (page != kPages.end()) {
    const bool allowed = get || (path == "/ping" && request.method == "POST");
    return allowed ? (this->*page->answer)() : method_not_allowed("GET");
  }
  constexpr std::string_view kModel = "/v1/models/", kResponse = "/v1/responses/";
  if (path.starts_with(kModel)) {
    return get ? show_model(model_, path.substr(kModel.size()), created_) : method_not_allowed("GET");
  }
  if (path.starts_with(kResponse)) return stored_response(std::string(path.substr(kResponse.size())), request.method);
  if (const WebFile* file = find_web_file(path)) {
    return get ? web_reply(*file, request) : method_not_allowed("GET");
  }
  throw ApiError(404, concat("There is nothing at ", request.method, " ", path, "."));
}

HttpReply Service::health() {
  if (draining_since_ > 0) throw ApiError(503, "The server is shutting down.", "", 1);
  if (host_.failed) throw ApiError(503, "The engine has failed: restart the server.");
  return {.body = "", .headers = {}};
}

HttpReply Service::version() { return {.body = dump(ReplyJson{{"version", options_.version}}), .headers = {}}; }
HttpReply Service::load() { return {.body = dump(ReplyJson{{"server_load", sessions_.size()}}), .headers = {}}; }
HttpReply Service::tokenizer() { return tokenizer_info(model_); }
HttpReply Service::models() { return list_models(model_, created_); }
HttpReply Service::cache_stats() { return {.body = cache_stats_json(sources()), .headers = {}}; }
HttpReply Service::spec_stats() { return {.body = spec_stats_json(backend_.stats()), .headers = {}}; }

HttpReply Service::metrics() {
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_text(sources()), .headers = {}};
}

HttpReply Service::stored_response(const std::string& id, std::string_view method) {
  if (method == "DELETE") {
    if (!responses_.erase(id)) throw ApiError(404, concat("There is no response `", id, "`."), "response_id");
    return {.body = dump(ReplyJson{{"id", id}, {"object", "response"}, {"deleted", true}}), .headers = {}};
  }
  if (method != "GET" && method != "HEAD") return method_not_allowed("GET, DELETE");
  const auto response = responses_.find(id);
  if (response == nullptr) throw ApiError(404, concat("There is no response `", id, "`."), "response_id");
  return {.body = response->body, .headers = {}};
}

MetricsSources Service::sources() const {
  return {.server = metrics_,
          .engine = backend_.stats(),
          .http = server_->stats(),
          .model = model_,
          .sessions = static_cast<int64_t>(sessions_.size()),
          .uptime_seconds = now_seconds() - started_};
}

}  // namespace folio
