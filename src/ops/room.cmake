# One file for each instruction set, with the same kernels: chosen by CPUID at start (cpu/isa.cpp), never joined with others
# in a unity build, optimised whatever else is not (scripts/demo).
set(optimised $<$<CONFIG:Release>:-O3>)
file(GLOB kernel_files ${CMAKE_SOURCE_DIR}/src/ops/cpu/kernels_*.cpp)
set_source_files_properties(${kernel_files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS ${optimised})

# Wider than the baseline.
set(options ${optimised} -march=icelake-server -mavx512bf16)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees its own _mm512_undefined_epi32() as a use without initialisation.
  list(APPEND options -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/kernels_avx512bf16.cpp PROPERTIES COMPILE_OPTIONS "${options}")

# GCC's vectoriser fuses the products of a rotation (vfmaddsub) in spite of -ffp-contract=off, which moves some elements
# by an ulp: the reference would not be the written arithmetic.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/ref/rotate.cpp PROPERTIES COMPILE_OPTIONS -fno-tree-vectorize)
endif()
