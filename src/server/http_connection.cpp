#include "server/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <optional>

#include "base/error.h"
#include "server/http_parse.h"

namespace folio {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::use_awaitable;
using boost::system::error_code;

constexpr size_t kReadBytes = 64 << 10;
constexpr double kLingerSeconds = 2;
constexpr auto kPeekInterval = std::chrono::milliseconds(200);

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

auto no_throw(error_code& error) { return asio::redirect_error(use_awaitable, error); }

// The answer to one request on its way to the socket. Shared with whoever answers, who may keep it longer than the
// connection lives. Parts of a stream go to the socket at once while it takes them (`direct`: where nothing is between
// them and it); what it does not take waits for the connection, which is woken.
class Outbox final : public Responder {
 public:
  Outbox(beast::tcp_stream& tcp, asio::steady_timer& wake, bool direct, int64_t max_bytes)
      : tcp_(tcp), wake_(&wake), direct_(direct), max_bytes_(static_cast<size_t>(max_bytes)) {}

  void set_request(bool head_only, bool http_1_0, bool keep_alive) {
    head_only_ = head_only;
    http_1_0_ = http_1_0;
    keep_alive_ = keep_alive;
  }

  void reply(HttpReply reply) override {
    if (done()) return;
    pending_ += reply_head(reply, BodyEnd::kLength, close_after(reply));
    if (!head_only_) pending_ += reply.body;
    finish();
  }
  void begin_stream(const HttpReply& head) override {
    if (done()) return;
    keep_alive_ = keep_alive_ && !http_1_0_;  // without chunks the end of the connection is the end of the body
    pending_ += reply_head(head, http_1_0_ ? BodyEnd::kClose : BodyEnd::kChunks, close_after(head));
    wake();
  }
  bool write(std::string_view part) override {
    if (done() || part.empty()) return !overflow_;
    if (!pending_.empty() && pending_.size() + part.size() > max_bytes_) {
      overflow_ = true;
      wake();
      tcp_.cancel();  // the connection may be in the middle of a write
      return false;
    }
    if (!head_only_) append_chunk(part);
    if (direct_ && !writing_) send();
    if (!pending_.empty()) wake();
    return true;
  }
  void end() override {
    if (done()) return;
    if (!http_1_0_ && !head_only_) pending_ += "0\r\n\r\n";
    finish();
  }

  // For the connection.
  void detach() { wake_ = nullptr; }
  // What the connection is to write now; written() says that it has.
  std::string take() {
    writing_ = true;
    return std::exchange(pending_, {});
  }
  void written() { writing_ = false; }
  bool empty() const { return pending_.empty(); }
  bool ended() const { return ended_; }
  bool overflow() const { return overflow_; }
  bool keep_alive() const { return keep_alive_; }

 private:
  bool done() const { return ended_ || overflow_ || wake_ == nullptr; }
  // A reply that says so itself ends the connection.
  bool close_after(const HttpReply& reply) {
    for (const HttpHeader& header : reply.headers) {
      if (!equal_ignoring_case(header.name, "Connection")) continue;
      keep_alive_ = false;
      return false;
    }
    return !keep_alive_;
  }
  void append_chunk(std::string_view part) {
    if (http_1_0_) {
      pending_ += part;
      return;
    }
    std::array<char, 20> size{};
    const int length = std::snprintf(size.data(), size.size(), "%zx\r\n", part.size());
    pending_.append(size.data(), static_cast<size_t>(length)).append(part).append("\r\n");
  }
  // As much as the socket takes now. What is wrong with it is found by the connection's own write of the rest.
  void send() {
    const ssize_t sent =
        ::send(tcp_.socket().native_handle(), pending_.data(), pending_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) pending_.erase(0, static_cast<size_t>(sent));
  }
  void finish() {
    ended_ = true;
    wake();
  }
  void wake() { wake_->cancel(); }

  beast::tcp_stream& tcp_;
  asio::steady_timer* wake_;  // null: the connection is gone
  const bool direct_;
  const size_t max_bytes_;
  std::string pending_;
  bool writing_ = false;  // the connection is
  bool head_only_ = false, http_1_0_ = false, keep_alive_ = false;
  bool ended_ = false, overflow_ = false;
};

// Counts one up while it lives.
class Count {
 public:
  explicit Count(int64_t& count) : count_(count) { ++count_; }
  ~Count() { --count_; }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;

 private:
  int64_t& count_;
};

// The bytes of a body, counted for the whole server while its request lives.
class BodyBytes {
 public:
  explicit BodyBytes(int64_t& total) : total_(total) {}
  ~BodyBytes() { total_ -= own_; }
  BodyBytes(const BodyBytes&) = delete;
  BodyBytes& operator=(const BodyBytes&) = delete;
  void add(size_t bytes) {
    own_ += static_cast<int64_t>(bytes);
    total_ += static_cast<int64_t>(bytes);
  }

 private:
  int64_t& total_;
  int64_t own_ = 0;
};

// The client has closed its side, or the connection is broken; also when it has sent more before.
bool peer_closed(int socket) {
  pollfd state{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

struct Refusal {
  int status = 0;  // 0: nothing to say, the connection is over
  std::string message;
};

// What to answer when reading a request has failed.
Refusal refusal_for(const error_code& error, const HttpLimits& limits) {
  if (error == http::error::body_limit) {
    return {413, concat("The request body is larger than ", limits.max_body_bytes, " bytes.")};
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return {431, concat("The request headers are larger than ", limits.max_header_bytes, " bytes.")};
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message) return {};
  if (error.category() == make_error_code(http::error::bad_method).category()) {
    return {400, concat("Not a valid HTTP/1.1 request: ", error.message(), ".")};
  }
  return {};
}

using Parser = http::request_parser<http::buffer_body>;

void set_limits(Parser& parser, const HttpLimits& limits) {
  parser.header_limit(limits.max_header_bytes);
  parser.body_limit(static_cast<uint64_t>(limits.max_body_bytes));
}

// False when the target is no path.
bool take_header(const Parser::value_type& message, HttpRequest& request) {
  request.method = std::string(message.method_string());
  for (const auto& field : message) {
    request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  return split_target(std::string_view(message.target().data(), message.target().size()), request);
}

template <typename Stream>
class Connection {
 public:
  template <typename... Args>
  Connection(ConnectionContext& context, std::string peer, Args&&... args)
      : context_(context),
        stream_(std::forward<Args>(args)...),
        buffer_(context.limits.max_header_bytes + kReadBytes),
        wake_(stream_.get_executor()),
        peer_(std::move(peer)) {}

  awaitable<void> serve() {
    error_code error;
    if constexpr (!kPlain) {
      tcp().expires_after(duration(context_.limits.header_seconds));
      co_await stream_.async_handshake(asio::ssl::stream_base::server, no_throw(error));
      if (error) co_return;
    }
    for (bool first = true; co_await wait_for_request(first); first = false) {
      if (!co_await serve_request()) break;
    }
    tcp().socket().shutdown(asio::socket_base::shutdown_both, error);
  }

 private:
  static constexpr bool kPlain = std::is_same_v<Stream, beast::tcp_stream>;

  beast::tcp_stream& tcp() { return beast::get_lowest_layer(stream_); }

  // Returns when the first bytes of the next request are there; false when none will come.
  awaitable<bool> wait_for_request(bool first) {
    if (buffer_.size() > 0) co_return true;
    tcp().expires_after(duration(first ? context_.limits.header_seconds : context_.limits.idle_seconds));
    error_code error;
    const size_t bytes = co_await stream_.async_read_some(buffer_.prepare(4096), no_throw(error));
    buffer_.commit(bytes);
    co_return !error && bytes > 0;
  }

  // True when the connection may take another request.
  awaitable<bool> serve_request() {
    const Count busy(context_.stats.busy);
    Parser parser;
    set_limits(parser, context_.limits);
    tcp().expires_after(duration(context_.limits.header_seconds));
    error_code error;
    co_await http::async_read_header(stream_, buffer_, parser, no_throw(error));
    HttpRequest request;
    request.peer = peer_;
    // What a co_await is given has a name: g++ 12 destroys some temporaries there twice.
    Refusal refusal;
    const bool has_path = take_header(parser.get(), request);  // also of a request that is too large
    if (error) {
      refusal = refusal_for(error, context_.limits);
    } else if (!has_path) {
      refusal = {400, "The request's target is not a valid path."};
    }
    if (error || refusal.status != 0) co_return co_await refuse(refusal, request);
    BodyBytes body(context_.body_bytes);
    refusal = co_await read_body(parser, body, request.body);
    if (refusal.status != 0 || !parser.is_done()) co_return co_await refuse(refusal, request);
    co_return co_await answer(std::move(request), parser.get().version() == 10, parser.keep_alive());
  }

  // Nothing in the refusal and the parser not done: the client has gone.
  awaitable<Refusal> read_body(Parser& parser, BodyBytes& counted, std::string& body) {
    if (parser.is_done()) co_return Refusal{};
    error_code error;
    if (equal_ignoring_case(std::string(parser.get()["Expect"]), "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(kContinue), no_throw(error));
      if (error) co_return Refusal{};
    }
    std::vector<char> chunk(kReadBytes);
    while (!parser.is_done()) {
      parser.get().body() = {.data = chunk.data(), .size = chunk.size(), .more = true};
      tcp().expires_after(duration(context_.limits.body_seconds));
      co_await http::async_read(stream_, buffer_, parser, no_throw(error));
      if (error && error != http::error::need_buffer) co_return refusal_for(error, context_.limits);
      const size_t bytes = chunk.size() - parser.get().body().size;
      body.append(chunk.data(), bytes);
      counted.add(bytes);
      if (context_.body_bytes > context_.limits.max_bodies_bytes) {
        co_return Refusal{503, "The server holds too many large requests; try again later."};
      }
    }
    co_return Refusal{};
  }

  awaitable<bool> answer(HttpRequest request, bool http_1_0, bool keep_alive) {
    const auto outbox = std::make_shared<Outbox>(tcp(), wake_, kPlain, context_.limits.max_buffered_bytes);
    outbox->set_request(request.method == "HEAD", http_1_0, keep_alive);
    const std::shared_ptr<Exchange> exchange = context_.handler.handle(std::move(request), outbox);
    bool sent = false;
    if (outbox->ended()) {
      sent = co_await write_out(*outbox);
    } else {
      using namespace asio::experimental::awaitable_operators;
      const auto first = co_await (write_out(*outbox) || watch());
      sent = first.index() == 0 && std::get<0>(first);
    }
    outbox->detach();
    if (outbox->overflow()) ++context_.stats.slow_readers;
    if (!sent && exchange != nullptr) exchange->on_disconnect();
    co_return sent && outbox->keep_alive();
  }

  // Sends what the outbox gets until its end. False when the client does not take it.
  awaitable<bool> write_out(Outbox& outbox) {
    error_code error;
    while (!outbox.overflow()) {
      if (outbox.empty()) {
        if (outbox.ended()) co_return true;
        wake_.expires_at(asio::steady_timer::time_point::max());
        co_await wake_.async_wait(no_throw(error));
        continue;
      }
      const std::string part = outbox.take();
      tcp().expires_after(duration(context_.limits.write_seconds));
      co_await asio::async_write(stream_, asio::buffer(part), no_throw(error));
      if (error == beast::error::timeout) ++context_.stats.slow_readers;
      if (error) co_return false;
      tcp().expires_never();
      outbox.written();
    }
    co_return false;
  }

  // Returns when the client has closed the connection. Bytes of a next request are left where they are.
  awaitable<void> watch() {
    asio::steady_timer pause(stream_.get_executor());
    error_code error;
    for (;;) {
      co_await tcp().socket().async_wait(asio::socket_base::wait_read, no_throw(error));
      if (error || peer_closed(tcp().socket().native_handle())) co_return;
      pause.expires_after(kPeekInterval);
      co_await pause.async_wait(no_throw(error));
    }
  }

  awaitable<bool> refuse(const Refusal& refusal, const HttpRequest& request) {
    if (refusal.status == 0) co_return false;
    ++context_.stats.bad_requests;
    const HttpReply reply = context_.handler.refuse(refusal.status, refusal.message, request.path);
    const std::string text = reply_head(reply, BodyEnd::kLength, true) + reply.body;
    error_code error;
    tcp().expires_after(duration(context_.limits.write_seconds));
    co_await asio::async_write(stream_, asio::buffer(text), no_throw(error));
    if (!error) co_await linger();
    co_return false;
  }

  // Reads on for a while after a refusal: closing with unread bytes would reset the connection, and the client, who is
  // still sending, would not see the reply.
  awaitable<void> linger() {
    error_code error;
    tcp().socket().shutdown(asio::socket_base::shutdown_send, error);
    tcp().expires_after(duration(kLingerSeconds));
    std::vector<char> discarded(kReadBytes);
    while (!error) co_await tcp().async_read_some(asio::buffer(discarded), no_throw(error));
  }

  ConnectionContext& context_;
  Stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer wake_;  // cancelled whenever the outbox changes
  std::string peer_;
};

}  // namespace

int parse_http(std::string_view bytes, size_t part, const HttpLimits& limits, HttpRequest& request) {
  Parser parser;
  set_limits(parser, limits);
  beast::flat_buffer buffer(limits.max_header_bytes + kReadBytes);
  std::vector<char> chunk(kReadBytes);
  bool took_header = false;
  while (!parser.is_done()) {
    const size_t size = std::min({part, bytes.size(), buffer.max_size() - buffer.size()});
    if (size > 0) buffer.commit(asio::buffer_copy(buffer.prepare(size), asio::buffer(bytes.data(), size)));
    bytes.remove_prefix(size);
    parser.get().body() = {.data = chunk.data(), .size = chunk.size(), .more = true};
    error_code error;
    const size_t used = parser.put(buffer.data(), error);
    buffer.consume(used);
    if (parser.is_header_done() && !std::exchange(took_header, true)) {
      if (!take_header(parser.get(), request)) return 400;
      parser.eager(true);  // only now, as a connection does: fields behind the body are not of the header
    }
    request.body.append(chunk.data(), chunk.size() - parser.get().body().size);
    if (error == http::error::need_buffer) continue;
    if (error && error != http::error::need_more) return refusal_for(error, limits).status;
    if (size == 0 && used == 0 && !parser.is_done()) return buffer.size() == buffer.max_size() ? 431 : 0;
  }
  return 200;
}

awaitable<void> serve_connection(asio::ip::tcp::socket socket, asio::ssl::context* tls, ConnectionContext& context) {
  const Count open(context.stats.connections);
  try {
    error_code error;
    const auto endpoint = socket.remote_endpoint(error);
    const std::string peer = error ? "" : endpoint.address().to_string();
    socket.set_option(asio::ip::tcp::no_delay(true), error);
    // Left to itself the kernel holds megabytes for a client that does not read.
    socket.set_option(asio::socket_base::send_buffer_size(context.limits.send_buffer_bytes), error);
    if (tls == nullptr) {
      Connection<beast::tcp_stream> connection(context, peer, std::move(socket));
      co_await connection.serve();
    } else {
      Connection<beast::ssl_stream<beast::tcp_stream>> connection(context, peer, beast::tcp_stream(std::move(socket)),
                                                                  *tls);
      co_await connection.serve();
    }
  } catch (const std::exception&) {
    // The connection is closed with its objects; no other is touched.
  }
}

}  // namespace folio
