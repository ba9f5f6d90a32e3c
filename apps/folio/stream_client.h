// A small HTTP/1.1 client for load measurements: JSON requests over kept-alive connections of one I/O thread, answers
// whole or, where they are server-sent events, event by event as they arrive.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace folio {

// Whom an https:// address may be.
struct ServerTrust {
  std::string ca_file;    // PEM certificates that may vouch for it; "": those of the system
  bool insecure = false;  // anybody
};

struct ServerAddress {
  std::string host, port;
  std::string base;  // before "/completions": "/v1", or "/prefix/v1"
  boost::asio::ip::tcp::endpoint endpoint;
  std::shared_ptr<boost::asio::ssl::context> tls;  // null: http
};

// Reads and resolves "http[s]://HOST[:PORT][/PREFIX][/v1]". Throws Error(kInvalidArgument) for what is no such address,
// names no host, or for a file without certificates.
ServerAddress resolve_server(const std::string& url, const ServerTrust& trust);

struct HttpAnswer {
  int status = 0;
  std::string body;  // empty when it came as events
};

// One connection, opened when it is needed and again when the server has closed it. One request at a time.
class StreamClient {
 public:
  // `timeout`: seconds without a byte after which a request fails. `key`: sent as a bearer token unless empty.
  StreamClient(boost::asio::io_context& io, const ServerAddress& server, std::string key, double timeout);
  ~StreamClient();

  // Sends a JSON body, or a GET where it is empty. `on_event` gets the data of each event of an answer that is a
  // stream. Throws boost::system::system_error when the connection fails or times out.
  boost::asio::awaitable<HttpAnswer> request(std::string path, std::string body,
                                             std::function<void(std::string_view)> on_event = {});

 private:
  using Tcp = boost::asio::ip::tcp::socket;
  using Tls = boost::asio::ssl::stream<Tcp>;
  class Patience;

  bool connected() const { return stream_.index() > 0; }
  boost::asio::awaitable<void> connect();
  boost::asio::awaitable<HttpAnswer> ask(const std::string& head, const std::string& body,
                                         const std::function<void(std::string_view)>& on_event);
  template <typename Stream>
  boost::asio::awaitable<HttpAnswer> exchange(Stream& stream, const std::string& head, const std::string& body,
                                              const std::function<void(std::string_view)>& on_event);

  boost::asio::io_context& io_;
  const ServerAddress& server_;
  std::string key_;
  std::shared_ptr<Patience> patience_;
  std::variant<std::monostate, Tcp, Tls> stream_;
  boost::beast::flat_buffer buffer_;
};

// Cuts the text of an event stream into the data of its events: lines may end in \n or \r\n and arrive in any parts;
// comments and other fields are skipped.
class EventReader {
 public:
  // Valid during the call: the data of one event.
  using OnEvent = std::function<void(std::string_view)>;
  void feed(std::string_view text, const OnEvent& on_event);

 private:
  void take_line(std::string_view line, const OnEvent& on_event);
  std::string rest_, data_;
  bool has_data_ = false;
};

}  // namespace folio
