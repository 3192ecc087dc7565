# capstan_layer(NAME LIBS…): one library per folder of src/, from the files in and below it; those
# under cuda/ or no_cuda/ as CUDA is built or not, and those of
# other libraries (icu/, curl/, mpi/, nccl/) by the caller. Layers may
# link those before them only; tools/check_layers.py checks the includes against the same order.
#
# Files after COLD (or all, after ALL_COLD) are compiled at -O1: they compute nothing, and compiling
# them takes longer than running them. What computes, or cuts text into tokens, keeps -O2: at -O1
# products and sums are not contracted, which would change bits.
function(capstan_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer ALL_COLD "" COLD)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${name}/*.cpp ${name}/*.cu)
  list(FILTER sources EXCLUDE REGEX "/((no_)?icu|(no_)?curl|mpi|nccl)/")
  if(CAPSTAN_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda/")
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  list(TRANSFORM layer_COLD PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/ OUTPUT_VARIABLE cold)
  if(layer_ALL_COLD)
    set(cold ${sources})
  endif()
  list(REMOVE_ITEM sources ${cold})
  add_library(capstan_${name} STATIC ${sources})
  target_link_libraries(capstan_${name} PUBLIC capstan_flags ${layer_UNPARSED_ARGUMENTS})
  if(sources)
    capstan_precompile(capstan_${name} capstan_base)
  endif()
  if(cold)
    capstan_cold(capstan_${name} ${cold})
  endif()
endfunction()

# capstan_cold(TARGET FILES…): compiles them at -O1, as a part of TARGET.
function(capstan_cold target)
  add_library(${target}_cold OBJECT ${ARGN})
  get_target_property(libraries ${target} LINK_LIBRARIES)
  target_link_libraries(${target}_cold PRIVATE ${libraries})
  target_compile_options(${target}_cold PRIVATE -O1)
  # A precompiled header serves one level of optimisation alone.
  capstan_precompile(${target}_cold capstan_base_cold)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_cold>)
endfunction()

# capstan_precompile(TARGET OWNER HEADERS…): a quarter of the time of building is reading the
# standard library. OWNER precompiles it, with HEADERS, and the other targets use that. A file
# still includes what it uses: the preset fuzz builds without.
function(capstan_precompile target owner)
  if(NOT CAPSTAN_PCH)
    return()
  endif()
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${ARGN} <algorithm> <chrono> <cmath> <cstdint>
      <filesystem> <fmt/format.h> <functional> <map> <memory> <optional> <span> <string>
      <string_view> <vector>)
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
