# folio_bundle_model(TARGET DIR)
#
# Puts the checkpoint of DIR into TARGET, as bytes of its read-only data: writes the source of
# folio::bundled_model_files() (apps/folio/bundled_model.h). Pictures and logs of the directory stay out.
function(folio_bundle_model target directory)
  file(GLOB files CONFIGURE_DEPENDS ${directory}/*.json ${directory}/*.safetensors ${directory}/NOTICE)
  set(blocks "")
  set(declarations "")
  set(entries "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER "bundled_${name}" symbol)
    string(APPEND blocks "    \".balign 64\\n${symbol}_begin:\\n.incbin \\\"${file}\\\"\\n${symbol}_end:\\n\"\n")
    string(APPEND declarations "extern const char ${symbol}_begin[];\nextern const char ${symbol}_end[];\n")
    string(APPEND entries "      {\"${name}\", {${symbol}_begin, static_cast<size_t>(${symbol}_end - ${symbol}_begin)}},\n")
  endforeach()
  set(output ${CMAKE_BINARY_DIR}/generated/bundled_model_files.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT
"// Made by cmake/BundledModel.cmake.
#include <array>

#include \"bundled_model.h\"

asm(\".pushsection .rodata.bundled_model,\\\"a\\\"\\n\"
@blocks@    \".popsection\\n\");

extern \"C\" {
@declarations@}

namespace folio {

std::span<const BundledFile> bundled_model_files() {
  static const auto kFiles = std::to_array<BundledFile>({
@entries@  });
  return kFiles;
}

}  // namespace folio
")
  set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${files}")
  target_sources(${target} PRIVATE ${output})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
endfunction()
