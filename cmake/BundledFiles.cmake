# folio_bundle_files(TARGET NAME FILE...)
#
# Puts files into TARGET, as bytes of its read-only data: writes the source of folio::NAME() (apps/folio/bundled_files.h).
function(folio_bundle_files target name)
  set(blocks "")
  set(declarations "")
  set(entries "")
  foreach(file ${ARGN})
    get_filename_component(file_name ${file} NAME)
    string(MAKE_C_IDENTIFIER "${name}_${file_name}" symbol)
    string(APPEND blocks "    \".balign 64\\n${symbol}_begin:\\n.incbin \\\"${file}\\\"\\n${symbol}_end:\\n\"\n")
    string(APPEND declarations "extern const char ${symbol}_begin[];\nextern const char ${symbol}_end[];\n")
    string(APPEND entries "      {\"${file_name}\", {${symbol}_begin, static_cast<size_t>(${symbol}_end - ${symbol}_begin)}},\n")
  endforeach()
  set(output ${CMAKE_BINARY_DIR}/generated/${name}.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT
"// Made by cmake/BundledFiles.cmake.
#include <array>

#include \"bundled_files.h\"

asm(\".pushsection .rodata.@name@,\\\"a\\\"\\n\"
@blocks@    \".popsection\\n\");

extern \"C\" {
@declarations@}

namespace folio {

std::span<const BundledFile> @name@() {
  static const auto kFiles = std::to_array<BundledFile>({
@entries@  });
  return kFiles;
}

}  // namespace folio
")
  set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${ARGN}")
  target_sources(${target} PRIVATE ${output})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
endfunction()
