# What we build on, found on the system. `./do` installs what is missing.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# OpenBLAS: any of its threading flavours, since we call it from our own threads, one each. The
# program loads it (ops/cpu/blas_library.h) by the name that linking would have recorded, or by its
# path where the system's loader does not look.
set(shared ${CMAKE_SHARED_LIBRARY_PREFIX}openblas${CMAKE_SHARED_LIBRARY_SUFFIX})
find_library(OPENBLAS_LIBRARY NAMES ${shared} openblas REQUIRED)
find_path(OPENBLAS_INCLUDE NAMES cblas.h
  PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} openblas openblas-pthread openblas-openmp
  REQUIRED)
add_library(openblas INTERFACE)
target_include_directories(openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
if(NOT OPENBLAS_LIBRARY MATCHES "\\${CMAKE_SHARED_LIBRARY_SUFFIX}$")
  message(FATAL_ERROR "${OPENBLAS_LIBRARY}: a shared OpenBLAS is needed, which the program loads")
endif()
execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${OPENBLAS_LIBRARY}
  OUTPUT_VARIABLE objdump COMMAND_ERROR_IS_FATAL ANY)
get_filename_component(folder ${OPENBLAS_LIBRARY} DIRECTORY)
set(OPENBLAS_LOADED ${OPENBLAS_LIBRARY})
if(objdump MATCHES "SONAME +([^ \n]+)" AND folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
  set(OPENBLAS_LOADED ${CMAKE_MATCH_1})
endif()

find_library(SENTENCEPIECE_LIBRARY NAMES sentencepiece REQUIRED)
find_path(SENTENCEPIECE_INCLUDE NAMES sentencepiece_processor.h REQUIRED)
add_library(sentencepiece INTERFACE)
target_link_libraries(sentencepiece INTERFACE ${SENTENCEPIECE_LIBRARY})
target_include_directories(sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE})

# ICU: for the tokenizers that cut text by Unicode's properties, which are most.
find_package(ICU COMPONENTS i18n uc)
if(NOT ICU_FOUND)
  message(STATUS "Without ICU (libicu-dev): a tokenizer.json that needs it will be refused")
endif()

# libcurl: for `capstan download`.
find_package(CURL 7.85)
if(NOT CURL_FOUND)
  message(STATUS "Without libcurl (libcurl4-openssl-dev): capstan will not download models")
endif()

# MPI: for ranks that are processes. Its C++ classes, which MPI no longer has, are not read.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS CXX)

if(CAPSTAN_CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
  # NCCL: for processes with a GPU each.
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
endif()
