# Compiler flags that every target shares.
if(NOT CMAKE_BUILD_TYPE AND NOT FOLIO_SANITIZE AND NOT FOLIO_FUZZ)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Paths relative to the checkout, so that another clone hits the same entries.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=true ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_UNITY_BUILD)
  # Files meet that never do otherwise (scripts/demo), and shadow each other's names.
  add_compile_options(-Wno-shadow)
else()
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # std::stable_sort of libstdc++ 12 trips this one inside its own header; g++ still checks ours.
  add_compile_options(-Wno-deprecated-declarations)
endif()
# The baseline of the binary; wider instruction sets live in their own files (src/ops/cpu) behind CPUID.
add_compile_options(-march=x86-64-v3)
# Sums keep their written order: no fast-math, no fused multiply-add that the code does not ask for.
add_compile_options(-ffp-contract=off)

if(FOLIO_SANITIZE)
  add_compile_options(-O1 -g -fno-omit-frame-pointer -fsanitize=${FOLIO_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FOLIO_SANITIZE})
endif()
if(FOLIO_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
