// The built-in page at "/": the files of this directory as they were when the program was built.
#pragma once

#include <span>
#include <string_view>

namespace folio {

struct WebFile {
  std::string_view path;          // as in a request: "/" is the page itself, "/app.js" a part of it
  std::string_view content_type;  // with its charset
  std::string_view body;
  std::string_view etag;  // quoted, of the content; for If-None-Match
};

std::span<const WebFile> web_files();
// Null where the page has no such file.
const WebFile* find_web_file(std::string_view path);

// The Content-Security-Policy header of every file of the page: what it shows and does comes from this server alone,
// nothing is evaluated, nothing is embedded elsewhere, and text cannot become markup.
inline constexpr std::string_view kWebSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

}  // namespace folio
