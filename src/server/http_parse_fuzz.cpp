// Requests as they come from sockets: whatever the bytes and however they are cut, no crash, the same verdict, and no
// more than the limits.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "server/http_parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  folio::HttpLimits limits;
  limits.max_body_bytes = 4096;
  limits.max_header_bytes = 1024;
  folio::HttpRequest whole, cut;
  const int status = folio::parse_http(bytes, bytes.size() + 1, limits, whole);
  const int cut_status = folio::parse_http(bytes, 7, limits, cut);
  FOLIO_CHECK(static_cast<int64_t>(whole.body.size()) <= limits.max_body_bytes);
  if (status == 200 && cut_status == 200) {
    FOLIO_CHECK(whole.path == cut.path && whole.body == cut.body && whole.headers.size() == cut.headers.size());
  }
  return 0;
}
