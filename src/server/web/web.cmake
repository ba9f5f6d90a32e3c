# The files of the built-in page, as bytes in the program.
set(web_files index.html style.css favicon.svg app.js api.js chat.js charts.js dom.js engine.js markdown.js
    message_view.js prometheus.js settings.js)
set(web_sources ${web_files})
list(TRANSFORM web_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(JOIN web_files "," web_names)
set(web_output ${CMAKE_BINARY_DIR}/generated/web_files.cpp)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated)
add_custom_command(
  OUTPUT ${web_output}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${web_output} -DDIRECTORY=${CMAKE_CURRENT_LIST_DIR} -DFILES=${web_names}
          -P ${CMAKE_SOURCE_DIR}/cmake/EmbedFiles.cmake
  DEPENDS ${web_sources} ${CMAKE_SOURCE_DIR}/cmake/EmbedFiles.cmake
  VERBATIM)
target_sources(folio_server PRIVATE ${web_output})
