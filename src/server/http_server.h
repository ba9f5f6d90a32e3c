// The listener and its one I/O thread (Boost.Asio and Beast, in http_server.cpp and http_connection.cpp alone).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/http_handler.h"

namespace folio {

struct HttpLimits {
  int64_t max_body_bytes = int64_t{64} << 20;
  int64_t max_bodies_bytes = int64_t{1} << 30;  // of all bodies that are being read or answered
  uint32_t max_header_bytes = 32 << 10;
  int64_t max_connections = 8192;
  int64_t max_buffered_bytes = int64_t{1} << 20;  // written for a client and not taken by its socket
  int32_t send_buffer_bytes = 256 << 10;          // that the kernel holds for a client
  double header_seconds = 10;                     // from the first byte of a request to the end of its headers
  double body_seconds = 60;                       // without a byte of a body
  double idle_seconds = 75;                       // between two requests of a connection
  double write_seconds = 30;                      // without the client taking a byte
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;           // 0: any free one
  std::string tls_cert, tls_key;  // PEM files; both empty: no TLS
  HttpLimits limits;
};

// What connections have in common, for metrics.
struct HttpStats {
  int64_t connections = 0;   // open now
  int64_t busy = 0;          // of these, with a request that is being read or answered
  int64_t accepted = 0;      // ever
  int64_t refused = 0;       // over max_connections
  int64_t bad_requests = 0;  // that never became one
  int64_t slow_readers = 0;  // cut off
};

class HttpServer {
 public:
  // Listens. Throws Error(kInvalidArgument) when it cannot: the address is in use, unknown or not allowed, or the
  // TLS files are not a certificate and its key. `handler` must outlive the server.
  HttpServer(const HttpOptions& options, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Serves on the calling thread, which becomes the I/O thread, until stop().
  void run();
  // Runs `work` on the I/O thread, in the order of the calls. From any thread.
  void post(std::function<void()> work);
  // Lets the I/O thread call the handler's on_news() soon. From any thread; one system call, never blocks.
  void notify();
  // Lets run() return: closes the listener and all connections. On the I/O thread.
  void stop();
  const HttpStats& stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace folio
