// The way back of one request, with what every reply gets and what is remembered of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/http_handler.h"

namespace folio {

// What the access line of a request says. Times are on the clock of now_seconds(), 0 where it has not happened.
struct RequestRecord {
  std::string id;  // of the reply, or of the request where it has none
  std::string method, path, peer;
  std::string model;  // "" for requests without one
  bool stream = false;
  int status = 0;      // 0: the client had gone before there was one
  std::string finish;  // reasons of the choices, joined by commas
  std::string error;
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  double arrived = 0, submitted = 0, scheduled = 0, first_token = 0, last_token = 0, ended = 0;
};

// One JSON object, or a line for people.
std::string access_line(const RequestRecord& record, bool json);

class ReplyChannel {
 public:
  // `headers` are those that every reply to this request gets.
  ReplyChannel(std::shared_ptr<Responder> responder, ApiStyle style, std::vector<HttpHeader> headers)
      : responder_(std::move(responder)), style_(style), headers_(std::move(headers)) {}

  void reply(HttpReply reply) {
    add_headers(reply);
    status_ = reply.status;
    responder_->reply(std::move(reply));
  }
  void refuse(const ApiError& error) { reply(error_reply(error, style_)); }
  void begin_stream() {
    HttpReply head{.content_type = "text/event-stream; charset=utf-8", .body = {}, .headers = {}};
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    add_headers(head);
    status_ = head.status;
    responder_->begin_stream(head);
  }
  bool write(std::string_view part) { return responder_->write(part); }
  void end() { responder_->end(); }

  ApiStyle style() const { return style_; }
  int status() const { return status_; }  // 0: none yet

 private:
  void add_headers(HttpReply& reply) const {
    reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
  }

  std::shared_ptr<Responder> responder_;
  ApiStyle style_;
  std::vector<HttpHeader> headers_;
  int status_ = 0;
};

}  // namespace folio
