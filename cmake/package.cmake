# What is installed, and `cpack`: Debian packages of the program (capstan, or capstan-cuda beside it)
# and of its transport for mpirun (capstan-mpi). `./do package` builds them for any processor.
# Made by the program itself, from the options of its commands.
set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated})
add_custom_command(OUTPUT ${generated}/capstan.1.gz ${generated}/capstan.bash
    ${generated}/_capstan ${generated}/capstan.fish ${generated}/changelog.gz
  COMMAND capstan man > ${generated}/capstan.1
  COMMAND gzip -9nf ${generated}/capstan.1
  COMMAND capstan completions bash > ${generated}/capstan.bash
  COMMAND capstan completions zsh > ${generated}/_capstan
  COMMAND capstan completions fish > ${generated}/capstan.fish
  COMMAND gzip -9nc ${CMAKE_CURRENT_SOURCE_DIR}/cmake/package/changelog > ${generated}/changelog.gz
  DEPENDS capstan ${CMAKE_CURRENT_SOURCE_DIR}/cmake/package/changelog
  VERBATIM)
add_custom_target(package_files DEPENDS ${generated}/capstan.1.gz)

set(name capstan)
if(CAPSTAN_CUDA)
  set(name capstan-cuda)
endif()
set(data ${CMAKE_INSTALL_DATADIR})
install(TARGETS capstan RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(FILES ${generated}/capstan.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program
  OPTIONAL)
install(FILES ${generated}/capstan.bash DESTINATION ${data}/bash-completion/completions
  RENAME capstan COMPONENT program OPTIONAL)
install(FILES ${generated}/_capstan DESTINATION ${data}/zsh/vendor-completions COMPONENT program
  OPTIONAL)
install(FILES ${generated}/capstan.fish DESTINATION ${data}/fish/vendor_completions.d
  COMPONENT program OPTIONAL)
install(DIRECTORY recipes catalogue DESTINATION ${data}/capstan COMPONENT program)
install(FILES cmake/package/copyright DESTINATION ${data}/doc/${name} COMPONENT program)
install(FILES ${generated}/changelog.gz DESTINATION ${data}/doc/${name} COMPONENT program OPTIONAL)
get_property(loaded GLOBAL PROPERTY capstan_loaded)
foreach(component mpi nccl)
  if(capstan_${component}_module IN_LIST loaded)
    install(TARGETS capstan_${component}_module LIBRARY
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/capstan
      COMPONENT ${component})
    install(FILES cmake/package/copyright DESTINATION ${data}/doc/${name}-${component}
      COMPONENT ${component})
    install(FILES ${generated}/changelog.gz DESTINATION ${data}/doc/${name}-${component}
      COMPONENT ${component} OPTIONAL)
    list(APPEND components ${component})
  endif()
endforeach()

# Debian's tools take the packager from these variables, too.
set(packager "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
if("$ENV{DEBEMAIL}" STREQUAL "")
  set(packager "Capstan's authors <capstan@capstan.invalid>")
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ${name})
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
  GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL program ${components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${packager}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ${name})
# OpenBLAS, since the program loads it: dpkg-shlibdeps sees what it is linked with.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "ca-certificates, libopenblas0")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "${name}-mpi")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train and fine-tune language models, planned to the byte")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
"Capstan trains Llama-family language models with one native program. It
reports before a run how much memory the run will need, and allocates
exactly that. Recipes and commands are those of LitGPT; checkpoints are
folders that Hugging Face programs open.")
if(CAPSTAN_CUDA)
  # Under the names of NVIDIA's packages, or of Debian's.
  set(toolkit ${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
  list(APPEND CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS
    "cuda-cudart-${toolkit} | libcudart${CUDAToolkit_VERSION_MAJOR}"
    "libcublas-${toolkit} | libcublaslt${CUDAToolkit_VERSION_MAJOR}")
  list(JOIN CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS ", " CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONFLICTS capstan)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_PROVIDES capstan)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_REPLACES capstan)
endif()
set(CPACK_DEBIAN_MPI_PACKAGE_NAME ${name}-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "${name} (= ${PROJECT_VERSION}), openmpi-bin")
set(CPACK_COMPONENT_MPI_DESCRIPTION
"With this package, Capstan trains one model with several processes, on one
machine or on several, that Open MPI connects.")
set(CPACK_DEBIAN_NCCL_PACKAGE_NAME ${name}-nccl)
set(CPACK_DEBIAN_NCCL_PACKAGE_DEPENDS "${name} (= ${PROJECT_VERSION}), libnccl2")
set(CPACK_COMPONENT_NCCL_DESCRIPTION
"With this package, processes of Capstan that have a GPU each exchange data
by NCCL.")
include(CPack)
