# capstan_layer(NAME LIBS…): one library per folder of src/, from the files in it and in the folder of
# each device that is built. Layers may link those before them only; tools/check_layers.py checks the
# includes against the same order.
function(capstan_layer name)
  file(GLOB sources CONFIGURE_DEPENDS ${name}/*.cpp ${name}/cpu/*.cpp)
  if(CAPSTAN_CUDA)
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${name}/cuda/*.cpp ${name}/cuda/*.cu)
    list(APPEND sources ${cuda_sources})
  endif()
  add_library(capstan_${name} STATIC ${sources})
  target_link_libraries(capstan_${name} PUBLIC capstan_flags ${ARGN})
  capstan_precompile(capstan_${name} capstan_base)
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
