#include "stream_client.h"

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace folio {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMostHeader = 64 << 10;
constexpr uint64_t kMostBody = uint64_t{1} << 30;

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Without the brackets of an IPv6 address.
std::string bare_name(std::string name) {
  return name.starts_with('[') && name.ends_with(']') ? name.substr(1, name.size() - 2) : name;
}

std::shared_ptr<asio::ssl::context> client_tls(const ServerTrust& trust) {
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  error_code error;
  if (trust.ca_file.empty()) {
    tls->set_default_verify_paths(error);
  } else {
    tls->load_verify_file(trust.ca_file, error);
    if (error) fail(ErrorCode::kInvalidArgument, "--ca-file ", trust.ca_file, ": ", error.message());
  }
  tls->set_verify_mode(trust.insecure ? asio::ssl::verify_none : asio::ssl::verify_peer);
  return tls;
}

}  // namespace

ServerAddress resolve_server(const std::string& url, const ServerTrust& trust) {
  std::string_view rest = url;
  const bool tls = take_prefix(rest, "https://");
  if (!tls && !take_prefix(rest, "http://")) {
    fail(ErrorCode::kInvalidArgument, "--url '", url,
         "' does not begin with http:// or https://, such as http://127.0.0.1:8000");
  }
  const std::string_view authority = rest.substr(0, rest.find('/'));
  std::string_view path = rest.substr(authority.size());
  while (path.ends_with('/')) path.remove_suffix(1);
  // "[::1]:8000" or "host:8000"
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  ServerAddress server;
  server.host = authority.substr(0, colon);
  server.port = colon != std::string_view::npos ? std::string(authority.substr(colon + 1)) : tls ? "443" : "80";
  server.base = path.ends_with("/v1") ? std::string(path) : concat(path, "/v1");
  const std::string name = bare_name(server.host);
  asio::io_context io;
  tcp::resolver resolver(io);
  error_code error;
  const auto found = resolver.resolve(name, server.port, error);
  if (name.empty() || error || found.empty()) {
    fail(ErrorCode::kInvalidArgument, "--url '", url, "': cannot find the host '", name, "' and port '", server.port,
         "': ", error ? error.message() : "nothing found");
  }
  server.endpoint = found.begin()->endpoint();
  if (tls) server.tls = client_tls(trust);
  return server;
}

// Closes a socket on which no byte has come for some time. Its timer is not touched when one does: it looks at the
// time of the last byte when it goes off.
class StreamClient::Patience : public std::enable_shared_from_this<Patience> {
 public:
  Patience(asio::io_context& io, double seconds) : timer_(io), seconds_(seconds) {}

  void begin(Tcp& socket) {
    socket_ = &socket;
    expired_ = false;
    renew();
    wait();
  }
  void renew() { last_byte_ = now_seconds(); }
  void end() {
    socket_ = nullptr;
    timer_.cancel();
  }
  bool expired() const { return expired_; }

 private:
  void wait() {
    const double left = last_byte_ + seconds_ - now_seconds();
    timer_.expires_after(std::chrono::nanoseconds(static_cast<int64_t>(1e9 * std::max(left, 0.001))));
    timer_.async_wait([weak = weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      if (error || self == nullptr || self->socket_ == nullptr) return;
      if (now_seconds() < self->last_byte_ + self->seconds_) return self->wait();
      self->expired_ = true;
      error_code ignored;
      self->socket_->close(ignored);
    });
  }

  asio::steady_timer timer_;
  const double seconds_;
  Tcp* socket_ = nullptr;
  double last_byte_ = 0;
  bool expired_ = false;
};

StreamClient::StreamClient(asio::io_context& io, const ServerAddress& server, std::string key, double timeout)
    : io_(io), server_(server), key_(std::move(key)), patience_(std::make_shared<Patience>(io, timeout)) {}

StreamClient::~StreamClient() { patience_->end(); }

asio::awaitable<HttpAnswer> StreamClient::request(std::string path, std::string body,
                                                  std::function<void(std::string_view)> on_event) {
  std::string head = concat(body.empty() ? "GET " : "POST ", path, " HTTP/1.1\r\nHost: ", server_.host, ':',
                            server_.port, "\r\nAccept: */*\r\n");
  if (!key_.empty()) head += concat("Authorization: Bearer ", key_, "\r\n");
  if (!body.empty()) head += concat("Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n");
  head += "\r\n";
  // A kept-alive connection may have been closed by the server just now: then, once, on a new one.
  const bool kept = connected();
  try {
    co_return co_await ask(head, body, on_event);
  } catch (const boost::system::system_error&) {
    patience_->end();
    stream_.emplace<std::monostate>();
    if (patience_->expired()) throw boost::system::system_error(asio::error::timed_out);
    if (!kept || buffer_.size() > 0) throw;
  }
  co_return co_await ask(head, body, on_event);
}

asio::awaitable<void> StreamClient::connect() {
  buffer_.clear();
  if (server_.tls == nullptr) {
    Tcp& socket = stream_.emplace<Tcp>(io_);
    patience_->begin(socket);
    co_await socket.async_connect(server_.endpoint, asio::use_awaitable);
    socket.set_option(tcp::no_delay(true));
    co_return;
  }
  Tls& stream = stream_.emplace<Tls>(io_, *server_.tls);
  patience_->begin(stream.next_layer());
  const std::string name = bare_name(server_.host);
  SSL_set_tlsext_host_name(stream.native_handle(), name.c_str());
  stream.set_verify_callback(asio::ssl::host_name_verification(name));
  co_await stream.next_layer().async_connect(server_.endpoint, asio::use_awaitable);
  stream.next_layer().set_option(tcp::no_delay(true));
  co_await stream.async_handshake(asio::ssl::stream_base::client, asio::use_awaitable);
}

asio::awaitable<HttpAnswer> StreamClient::ask(const std::string& head, const std::string& body,
                                              const std::function<void(std::string_view)>& on_event) {
  if (!connected()) co_await connect();
  if (Tls* tls = std::get_if<Tls>(&stream_)) co_return co_await exchange(*tls, head, body, on_event);
  co_return co_await exchange(std::get<Tcp>(stream_), head, body, on_event);
}

template <typename Stream>
asio::awaitable<HttpAnswer> StreamClient::exchange(Stream& stream, const std::string& head, const std::string& body,
                                                   const std::function<void(std::string_view)>& on_event) {
  patience_->begin(boost::beast::get_lowest_layer(stream));
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
  co_await asio::async_write(stream, parts, asio::use_awaitable);

  http::response_parser<http::buffer_body> parser;
  parser.header_limit(kMostHeader);
  parser.body_limit(kMostBody);
  co_await http::async_read_header(stream, buffer_, parser, asio::use_awaitable);
  HttpAnswer answer;
  answer.status = static_cast<int>(parser.get().result_int());
  const bool events = parser.get()[http::field::content_type].starts_with("text/event-stream");
  EventReader reader;
  std::array<char, 16 << 10> part;
  while (!parser.is_done()) {
    parser.get().body().data = part.data();
    parser.get().body().size = part.size();
    error_code error;
    co_await http::async_read_some(stream, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
    if (error && error != http::error::need_buffer) throw boost::system::system_error(error);
    patience_->renew();
    const std::string_view text(part.data(), part.size() - parser.get().body().size);
    if (events && on_event) {
      reader.feed(text, on_event);
    } else {
      answer.body += text;
    }
  }
  patience_->end();
  if (!parser.keep_alive()) stream_.emplace<std::monostate>();
  co_return answer;
}

void EventReader::feed(std::string_view text, const OnEvent& on_event) {
  for (;;) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    if (rest_.empty()) {
      take_line(text.substr(0, end), on_event);
    } else {
      rest_ += text.substr(0, end);
      const std::string line = std::exchange(rest_, {});
      take_line(line, on_event);
    }
    text.remove_prefix(end + 1);
  }
  rest_ += text;
}

void EventReader::take_line(std::string_view line, const OnEvent& on_event) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) {
    if (has_data_) on_event(data_);
    has_data_ = false;
    data_.clear();
  } else if (take_prefix(line, "data:")) {
    take_prefix(line, " ");
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
}

}  // namespace folio
