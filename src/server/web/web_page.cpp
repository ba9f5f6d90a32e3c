#include "server/web/web_page.h"

#include <algorithm>

namespace folio {

const WebFile* find_web_file(std::string_view path) {
  const std::span<const WebFile> files = web_files();
  const auto found = std::find_if(files.begin(), files.end(), [&](const WebFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

}  // namespace folio
