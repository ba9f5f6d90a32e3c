include(${CMAKE_CURRENT_LIST_DIR}/web/web.cmake)

# GCC 12 warns of a coroutine whose frame holds types of an unnamed namespace in any file but the one it compiles: a unity
# build (scripts/demo) leaves this one alone.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/http_connection.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
