include(${CMAKE_CURRENT_LIST_DIR}/web/web.cmake)
