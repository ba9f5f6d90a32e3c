#include "stream_client.h"

#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace folio {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;

constexpr size_t kMostHeader = 64 << 10;
constexpr uint64_t kMostBody = uint64_t{1} << 30;

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

ServerAddress resolve_server(const std::string& url) {
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    fail(ErrorCode::kInvalidArgument, "--url '", url,
         "': https is not spoken here; give the http:// address of the server behind the proxy");
  }
  if (!take_prefix(rest, "http://")) {
    fail(ErrorCode::kInvalidArgument, "--url '", url, "' does not begin with http://, such as http://127.0.0.1:8000");
  }
  const std::string_view authority = rest.substr(0, rest.find('/'));
  std::string_view path = rest.substr(authority.size());
  while (path.ends_with('/')) path.remove_suffix(1);
  // "[::1]:8000" or "host:8000"
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  ServerAddress server;
  server.host = authority.substr(0, colon);
  server.port = colon == std::string_view::npos ? "80" : std::string(authority.substr(colon + 1));
  server.base = path.ends_with("/v1") ? std::string(path) : concat(path, "/v1");
  std::string name = server.host;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  asio::io_context io;
  tcp::resolver resolver(io);
  boost::system::error_code error;
  const auto found = resolver.resolve(name, server.port, error);
  if (name.empty() || error || found.empty()) {
    fail(ErrorCode::kInvalidArgument, "--url '", url, "': cannot find the host '", name, "' and port '", server.port,
         "': ", error ? error.message() : "nothing found");
  }
  server.endpoint = found.begin()->endpoint();
  return server;
}

asio::awaitable<HttpAnswer> StreamClient::request(std::string path, std::string body,
                                                  std::function<void(std::string_view)> on_event) {
  std::string head = concat(body.empty() ? "GET " : "POST ", path, " HTTP/1.1\r\nHost: ", server_.host, ':',
                            server_.port, "\r\nAccept: */*\r\n");
  if (!key_.empty()) head += concat("Authorization: Bearer ", key_, "\r\n");
  if (!body.empty()) head += concat("Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n");
  head += "\r\n";
  // A kept-alive connection may have been closed by the server just now: then, once, on a new one.
  const bool kept = stream_.has_value();
  try {
    co_return co_await exchange(head, body, on_event);
  } catch (const boost::system::system_error&) {
    stream_.reset();
    if (!kept || buffer_.size() > 0) throw;
  }
  co_return co_await exchange(head, body, on_event);
}

asio::awaitable<HttpAnswer> StreamClient::exchange(const std::string& head, const std::string& body,
                                                   const std::function<void(std::string_view)>& on_event) {
  const auto patience = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout_));
  if (!stream_) {
    buffer_.clear();
    stream_.emplace(io_);
    stream_->expires_after(patience);
    co_await stream_->async_connect(server_.endpoint, asio::use_awaitable);
    stream_->socket().set_option(tcp::no_delay(true));
  }
  boost::beast::tcp_stream& stream = *stream_;
  stream.expires_after(patience);
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
    stream.expires_after(patience);
    boost::system::error_code error;
    co_await http::async_read_some(stream, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
    if (error && error != http::error::need_buffer) throw boost::system::system_error(error);
    const std::string_view text(part.data(), part.size() - parser.get().body().size);
    if (events && on_event) {
      reader.feed(text, on_event);
    } else {
      answer.body += text;
    }
  }
  stream.expires_never();
  if (!parser.keep_alive()) stream_.reset();
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
