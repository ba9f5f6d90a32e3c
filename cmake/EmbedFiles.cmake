# cmake -DOUTPUT=FILE -DDIRECTORY=DIR -DFILES=a,b -P EmbedFiles.cmake
#
# Writes the C++ source of folio::web_files() (src/server/web/web_page.h) with the bytes of the named files.
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

set(bodies "")
set(entries "")
string(REPLACE "," ";" FILES "${FILES}")
foreach(file ${FILES})
  string(REGEX REPLACE "^.*\\." "" extension ${file})
  if(NOT type_${extension})
    message(FATAL_ERROR "${file}: no content type is known for .${extension}")
  endif()
  file(READ ${DIRECTORY}/${file} hex HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${hex}")
  file(SHA256 ${DIRECTORY}/${file} digest)
  string(SUBSTRING ${digest} 0 16 etag)
  string(MAKE_C_IDENTIFIER ${file} name)
  set(path /${file})
  if(file STREQUAL "index.html")
    set(path /)
  endif()
  string(APPEND bodies "constexpr char ${name}[] = \"${bytes}\";\n")
  string(APPEND entries
    "    {\"${path}\", \"${type_${extension}}\", {${name}, sizeof(${name}) - 1}, \"\\\"${etag}\\\"\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by cmake/EmbedFiles.cmake.
#include \"server/web/web_page.h\"

namespace folio {
namespace {

${bodies}
constexpr WebFile kFiles[] = {
${entries}};

}  // namespace

std::span<const WebFile> web_files() { return kFiles; }

}  // namespace folio
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
