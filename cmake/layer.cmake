# capstan_layer(NAME LIBS…): one library per folder of src/, from the files in and below it; those
# under cuda/ or no_cuda/ as CUDA is built or not, and those of
# other libraries (icu/, curl/, mpi/, nccl/) by the caller. Layers may
# link those before them only; tools/check_layers.py checks the includes against the same order.
#
# Files after COLD (or all, after ALL_COLD) are compiled at -O1: they compute nothing, and compiling
# them takes longer than running them. What computes, or cuts text into tokens, keeps -O2: at -O1
# products and sums are not contracted, which would change bits. Files after LOOPS are compiled at
# -O3: vectorised loops need more than -O2's cost model allows.
function(capstan_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer ALL_COLD "" "COLD;LOOPS")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${name}/*.cpp ${name}/*.cu)
  list(FILTER sources EXCLUDE REGEX "/((no_)?icu|(no_)?curl|mpi|nccl)/")
  if(CAPSTAN_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda/")
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  set(on_cuda ${sources})
  list(FILTER on_cuda INCLUDE REGEX "/cuda/")
  set_source_files_properties(${on_cuda} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  list(TRANSFORM layer_COLD PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/ OUTPUT_VARIABLE cold)
  if(layer_ALL_COLD)
    set(cold ${sources})
  endif()
  list(TRANSFORM layer_LOOPS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/ OUTPUT_VARIABLE loops)
  if(CAPSTAN_SANITIZE)
    set(loops)
  endif()
  list(REMOVE_ITEM sources ${cold} ${loops})
  add_library(capstan_${name} STATIC ${sources})
  target_link_libraries(capstan_${name} PUBLIC capstan_flags ${layer_UNPARSED_ARGUMENTS})
  if(sources)
    capstan_precompile(capstan_${name} capstan_base)
    capstan_unite(capstan_${name})
  endif()
  # A precompiled header serves one level of optimisation alone.
  if(cold)
    capstan_part(capstan_${name} cold -O1 ${cold})
    capstan_precompile(capstan_${name}_cold capstan_base_cold)
    capstan_unite(capstan_${name}_cold)
  endif()
  if(loops)
    capstan_part(capstan_${name} loops -O3 ${loops})
    capstan_precompile(capstan_${name}_loops capstan_${name}_loops)
  endif()
endfunction()

# capstan_part(TARGET PART LEVEL FILES…): compiles them at LEVEL, as a part of TARGET.
function(capstan_part target part level)
  add_library(${target}_${part} OBJECT ${ARGN})
  get_target_property(libraries ${target} LINK_LIBRARIES)
  target_link_libraries(${target}_${part} PRIVATE ${libraries})
  target_compile_options(${target}_${part} PRIVATE ${level})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${part}>)
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

# capstan_unite(TARGET): with CAPSTAN_UNITY, compiles its files eight at a time, which read headers and
# instantiate templates once together. So names in anonymous namespaces are unique within a target.
# Files with options of their own stay alone; so do loops, whose code must not depend on its
# neighbours, and what needs CUDA.
function(capstan_unite target)
  if(CAPSTAN_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()
