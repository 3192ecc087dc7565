# What we build on, found on the system. `./do` installs what is missing.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# OpenBLAS: any of its threading flavours, since we call it from our own threads, one each.
find_library(OPENBLAS_LIBRARY NAMES openblas REQUIRED)
find_path(OPENBLAS_INCLUDE NAMES cblas.h
  PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} openblas openblas-pthread openblas-openmp
  REQUIRED)
add_library(openblas INTERFACE)
target_link_libraries(openblas INTERFACE ${OPENBLAS_LIBRARY})
target_include_directories(openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})

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

# MPI: for ranks that are processes.
find_package(MPI COMPONENTS CXX)

if(CAPSTAN_CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
  # NCCL: for processes with a GPU each.
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
endif()
