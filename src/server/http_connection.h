// One connection: reads requests, hands them to the handler, writes what it answers. Included by http_server.cpp alone.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include "server/http_server.h"

namespace folio {

// What a connection needs of its server. On the I/O thread; outlives the connections.
struct ConnectionContext {
  const HttpLimits& limits;
  HttpHandler& handler;
  HttpStats stats;
  int64_t body_bytes = 0;  // of all connections
};

// Serves `socket` until either side closes it; with `tls`, encrypted. Never throws.
boost::asio::awaitable<void> serve_connection(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls,
                                              ConnectionContext& context);

}  // namespace folio
