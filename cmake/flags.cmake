# Compiler settings that every target of ours gets through capstan_flags.
add_library(capstan_flags INTERFACE)
target_include_directories(capstan_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(capstan_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-qual -Wunused
  # The loops are written to be vectorised; these let the compiler do it without changing any
  # value that is not NaN. Reassociation (-ffast-math) stays off: results are bitwise repeatable.
  -fno-math-errno -fno-trapping-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 and 13 see overflows in std::vector's own inlined code where there are none.
  target_compile_options(capstan_flags INTERFACE -Wno-stringop-overflow
    -Wno-stringop-overread -Wno-array-bounds)
endif()
if(CAPSTAN_WERROR)
  target_compile_options(capstan_flags INTERFACE -Werror)
endif()
if(CAPSTAN_NATIVE)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    target_compile_options(capstan_flags INTERFACE -mcpu=native)
  else()
    target_compile_options(capstan_flags INTERFACE -march=native)
  endif()
endif()
if(CAPSTAN_SANITIZE)
  target_compile_options(capstan_flags INTERFACE -fsanitize=${CAPSTAN_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(capstan_flags INTERFACE -fsanitize=${CAPSTAN_SANITIZE})
endif()
