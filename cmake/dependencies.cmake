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

if(CAPSTAN_CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
endif()
