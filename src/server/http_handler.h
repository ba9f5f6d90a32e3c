// The seam between connections and what answers them. Everything here happens on the I/O thread.
#pragma once

#include <memory>
#include <string_view>

#include "server/http_message.h"

namespace folio {

// The way back of one request; made by its connection. Either reply(), or begin_stream(), any number of write() and
// end(). Calls after the end, or after the client has gone, do nothing.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void reply(HttpReply reply) = 0;
  // Status and headers of an answer whose body follows in parts; `head.body` is not looked at.
  virtual void begin_stream(const HttpReply& head) = 0;
  // Sends a part of the body as soon as the socket takes it. False when more is waiting for a slow reader than the
  // server holds for one: the connection is closed, and on_disconnect() has not been called.
  virtual bool write(std::string_view part) = 0;
  virtual void end() = 0;
};

// A request that is not answered yet, as its connection sees it.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // The client has gone, or reads too slowly. Called at most once, and not after the answer has been sent whole.
  virtual void on_disconnect() = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Answers through `responder`, at once or later. What it returns is told of a disconnect; null: nobody is.
  virtual std::shared_ptr<Exchange> handle(HttpRequest request, std::shared_ptr<Responder> responder) = 0;
  // The reply to what never became a request: bad syntax, too large, too slow. `path` is "" where none was read.
  virtual HttpReply refuse(int status, std::string_view message, std::string_view path) = 0;
  // HttpServer::notify() has been called since the last time, once or more often.
  virtual void on_news() = 0;
  // Ten times a second.
  virtual void tick() = 0;
  // SIGINT or SIGTERM has arrived.
  virtual void on_signal(int signal) = 0;
};

}  // namespace folio
