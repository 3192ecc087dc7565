# Compiler settings that every target of ours gets through capstan_flags.
add_library(capstan_flags INTERFACE)
target_include_directories(capstan_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
function(capstan_cxx_options)
  target_compile_options(capstan_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
endfunction()
capstan_cxx_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-qual -Wunused
  # The loops are written to be vectorised; these let the compiler do it without changing any
  # value that is not NaN. Reassociation (-ffast-math) stays off: results are bitwise repeatable.
  -fno-math-errno -fno-trapping-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 and 13 see overflows in std::vector's own inlined code where there are none.
  capstan_cxx_options(-Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
  # It collects its garbage from 128 MiB on, which is a tenth of the time of building.
  capstan_cxx_options(--param=ggc-min-heapsize=524288)
endif()
target_compile_definitions(capstan_flags INTERFACE CAPSTAN_WITH_CUDA=$<BOOL:${CAPSTAN_CUDA}>
  # Of nlohmann's JSON, which takes long to compile: what nobody uses.
  JSON_HAS_THREE_WAY_COMPARISON=0 JSON_HAS_RANGES=0)
if(CAPSTAN_WERROR)
  capstan_cxx_options(-Werror)
endif()
if(CAPSTAN_NATIVE)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    # Clang goes by the processor's model; a virtual machine may hide its scalable vectors.
    set(cpu native)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND EXISTS /proc/cpuinfo)
      file(STRINGS /proc/cpuinfo scalable REGEX "^Features.* sve" LIMIT_COUNT 1)
      if(NOT scalable)
        set(cpu native+nosve)
      endif()
    endif()
    capstan_cxx_options(-mcpu=${cpu})
  else()
    capstan_cxx_options(-march=native)
  endif()
endif()
if(CAPSTAN_HARDENED)
  # As Debian hardens its own packages, and all that its hardening-check looks for. Both systems'
  # compilers make position-independent programs by themselves.
  include(CheckCXXCompilerFlag)
  set(protections -fstack-protector-strong)
  foreach(protection -fstack-clash-protection -fcf-protection -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER has${protection} has)
    check_cxx_compiler_flag(${protection} ${has})
    if(${has})
      list(APPEND protections ${protection})
    endif()
  endforeach()
  capstan_cxx_options(${protections} -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  list(JOIN protections "," protections)
  target_compile_options(capstan_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${protections}>")
  add_link_options(-Wl,-z,relro,-z,now)
endif()
if(CAPSTAN_SANITIZE)
  capstan_cxx_options(-fsanitize=${CAPSTAN_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(capstan_flags INTERFACE -fsanitize=${CAPSTAN_SANITIZE})
endif()
if(CAPSTAN_CUDA)
  # Hopper's matrix products are in its own instruction set alone.
  set(wgmma 0)
  if("90a" IN_LIST CMAKE_CUDA_ARCHITECTURES OR "90a-real" IN_LIST CMAKE_CUDA_ARCHITECTURES)
    set(wgmma 1)
  endif()
  target_compile_definitions(capstan_flags INTERFACE CAPSTAN_WITH_WGMMA=${wgmma})
  # fmt turns its constexpr off for nvcc, and needs it for the checks of format strings.
  target_compile_definitions(capstan_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>")
  # Multiplications and additions fuse, as on the CPU; divisions and roots stay exact.
  target_compile_options(capstan_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-lineinfo;-Xcompiler=-Wall>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${CAPSTAN_WERROR}>>:-Werror=all-warnings>")
endif()
