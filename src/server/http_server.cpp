#include "server/http_server.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>

#include "base/error.h"
#include "server/http_connection.h"

namespace folio {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int kBacklog = 4096;

tcp::acceptor listen(asio::io_context& io, const HttpOptions& options) {
  error_code error;
  tcp::resolver resolver(io);
  const auto addresses = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || addresses.empty()) {
    fail(ErrorCode::kInvalidArgument, "--host ", options.host, ": not an address of this machine (", error.message(),
         ")");
  }
  const tcp::endpoint endpoint = addresses.begin()->endpoint();
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) {
    fail(ErrorCode::kInvalidArgument, "cannot listen on ", options.host, " port ", options.port, ": ", error.message(),
         "; choose another --host or --port");
  }
  return acceptor;
}

std::unique_ptr<asio::ssl::context> make_tls(const HttpOptions& options) {
  if (options.tls_cert.empty() && options.tls_key.empty()) return nullptr;
  if (options.tls_cert.empty() || options.tls_key.empty()) {
    fail(ErrorCode::kInvalidArgument, "--tls-cert and --tls-key go together: give both PEM files");
  }
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                   asio::ssl::context::no_tlsv1_1);
  tls->use_certificate_chain_file(options.tls_cert, error);
  if (error) fail(ErrorCode::kInvalidArgument, "--tls-cert ", options.tls_cert, ": ", error.message());
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) fail(ErrorCode::kInvalidArgument, "--tls-key ", options.tls_key, ": ", error.message());
  return tls;
}

// A counter that wakes whoever reads it. Cheaper than posting to the io_context, which wakes its thread while it holds
// the lock that the thread then waits for.
int make_event() {
  const int event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event < 0) fail(ErrorCode::kUnavailable, "cannot make an eventfd: too many files are open");
  return event;
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& given, HttpHandler& the_handler)
      : options(given),
        handler(the_handler),
        context{.limits = options.limits, .handler = handler, .stats = {}},
        tls(make_tls(options)),
        acceptor(listen(io, options)),
        signals(io, SIGINT, SIGTERM),
        news(io, make_event()) {}

  asio::awaitable<void> accept() {
    error_code error;
    asio::steady_timer pause(io);
    while (acceptor.is_open()) {
      tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (error) {  // out of descriptors, most likely: leave time to close some
        pause.expires_after(kTick);
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      ++context.stats.accepted;
      if (context.stats.connections >= options.limits.max_connections) {
        ++context.stats.refused;
        continue;  // closes the socket
      }
      asio::co_spawn(io, serve_connection(std::move(socket), tls.get(), context), asio::detached);
    }
  }

  asio::awaitable<void> tick() {
    asio::steady_timer timer(io);
    for (;;) {
      timer.expires_after(kTick);
      co_await timer.async_wait(asio::use_awaitable);
      handler.tick();
    }
  }

  void wait_for_signal() {
    signals.async_wait([this](const error_code& error, int signal) {
      if (error) return;
      handler.on_signal(signal);
      wait_for_signal();
    });
  }

  void wait_for_news() {
    news.async_read_some(asio::buffer(news_count), [this](const error_code& error, size_t) {
      if (error) return;
      handler.on_news();
      wait_for_news();
    });
  }

  const HttpOptions options;
  HttpHandler& handler;
  ConnectionContext context;
  std::unique_ptr<asio::ssl::context> tls;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::posix::stream_descriptor news;  // an eventfd
  std::array<uint64_t, 1> news_count{};
};

HttpServer::HttpServer(const HttpOptions& options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(options, handler)) {}

HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

void HttpServer::run() {
  asio::co_spawn(impl_->io, impl_->accept(), asio::detached);
  asio::co_spawn(impl_->io, impl_->tick(), asio::detached);
  impl_->wait_for_signal();
  impl_->wait_for_news();
  impl_->io.run();
}

void HttpServer::post(std::function<void()> work) { asio::post(impl_->io, std::move(work)); }

void HttpServer::notify() {
  const uint64_t one = 1;
  // It can only fail when the counter is about to overflow, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = ::write(impl_->news.native_handle(), &one, sizeof one);
}

void HttpServer::stop() {
  error_code ignored;
  impl_->acceptor.close(ignored);
  impl_->io.stop();
}

const HttpStats& HttpServer::stats() const { return impl_->context.stats; }

}  // namespace folio
