# Debian packages, one for each component of TrivetInstall.cmake: cpack -G DEB, or scripts/package, which also makes the
# documentation. Only the preset `package` turns this on, because it adds what Debian wants in every package to the installed files.
#
#   trivet              the program; programs with libraries that only some jobs need are separate:
#   trivet-ucx          messages between hosts over UCX
#   trivet-gloo         messages between hosts over gloo
#   trivet-cuda         the CUDA backend, if the build found nvcc and NCCL
#   libtrivet-c1        the shared library of the C API
#   libtrivet-dev       static libraries and headers
#   trivet-doc          the documentation as HTML
#
# Packages belong to the distribution they are built on: its version is in theirs, and dpkg-shlibdeps computes what they depend on.
if(NOT TRIVET_PACKAGES)
  return()
endif()
set(TRIVET_PACKAGE_MAINTAINER "Trivet packagers <packagers@trivet.invalid>" CACHE STRING "Who is responsible for the packages")

cmake_host_system_information(RESULT distribution QUERY DISTRIB_INFO)
string(REGEX REPLACE "debian" "deb" short_name "${distribution_ID}${distribution_VERSION_ID}")
set(CPACK_DEBIAN_PACKAGE_RELEASE "1~${short_name}")
set(whole_version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trivet)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # so that packages of programs that use libtrivet_c.so get their dependency
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${TRIVET_PACKAGE_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, if that is set
configure_file(cmake/packages/changelog.in ${CMAKE_BINARY_DIR}/changelog @ONLY)
execute_process(COMMAND gzip -9nc ${CMAKE_BINARY_DIR}/changelog
  OUTPUT_FILE ${CMAKE_BINARY_DIR}/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)

# trivet_package(COMPONENT NAME SECTION section [DEPENDS text] [RECOMMENDS text] [SUGGESTS text] [ENHANCES text] [BINARIES]
#   DESCRIPTION lines...)   BINARIES: dpkg-shlibdeps adds the shared libraries that its files need
function(trivet_package component name)
  # This form keeps empty lines.
  cmake_parse_arguments(PARSE_ARGV 2 arg "BINARIES" "SECTION;DEPENDS;RECOMMENDS;SUGGESTS;ENHANCES" "DESCRIPTION")
  string(TOUPPER ${component} upper)
  list(JOIN arg_DESCRIPTION "\n" description)
  set(prefix CPACK_DEBIAN_${upper})
  set(${prefix}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(${prefix}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(${prefix}_PACKAGE_SECTION ${arg_SECTION} PARENT_SCOPE)
  set(${prefix}_PACKAGE_SHLIBDEPS ${arg_BINARIES} PARENT_SCOPE)
  foreach(field DEPENDS RECOMMENDS SUGGESTS ENHANCES)
    set(${prefix}_PACKAGE_${field} "${arg_${field}}" PARENT_SCOPE)
  endforeach()
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/packages/copyright ${CMAKE_BINARY_DIR}/changelog.Debian.gz
    DESTINATION share/doc/${name} COMPONENT ${component})
  set(overrides ${PROJECT_SOURCE_DIR}/cmake/packages/${name}.lintian-overrides)
  if(EXISTS ${overrides})
    install(FILES ${overrides} DESTINATION share/lintian/overrides RENAME ${name} COMPONENT ${component})
  endif()
endfunction()

set(CPACK_COMPONENTS_ALL)
trivet_package(program trivet SECTION science BINARIES
  SUGGESTS "bible-kjv, openssh-client, trivet-cuda, trivet-doc, trivet-gloo, trivet-ucx"
  DESCRIPTION "training engine for transformer models"
  "Trivet trains GPT and Llama style models on CPUs or GPUs. One JSON file, in"
  "DeepSpeed's vocabulary, says what to train and how. Optimizer states,"
  "gradients and parameters can be partitioned among the ranks (ZeRO 1 to 3),"
  "together with tensor and pipeline parallelism."
  ""
  "Ranks of one host need only this package. Jobs on several hosts need"
  "trivet-ucx or trivet-gloo, GPUs need trivet-cuda. The command `trivet demo`"
  "trains a small model on the text of the package bible-kjv.")
trivet_package(c_library libtrivet-c1 SECTION libs BINARIES
  DESCRIPTION "training engine for transformer models (C library)"
  "The shared library that gives programs in C the sharding, the optimizers and"
  "the checkpoints of Trivet. Programs in C++ are linked with libtrivet-dev.")
set(CPACK_DEBIAN_C_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/packages/triggers)  # ldconfig
trivet_package(development libtrivet-dev SECTION libdevel
  DEPENDS "libtrivet-c1 (= ${whole_version}), libdnnl-dev, libfmt-dev (>= 9), libpcre2-dev, libpng-dev, libsodium-dev, libutf8proc-dev, nlohmann-json3-dev, zlib1g-dev"
  SUGGESTS "cmake, pkgconf, trivet-doc"
  DESCRIPTION "training engine for transformer models (development files)"
  "Static libraries and headers of Trivet, with files for CMake's find_package"
  "and for pkg-config. The libraries open the modules in trivet-ucx, trivet-gloo"
  "and trivet-cuda as the program does.")
# The licences of the header-only libraries that are compiled in ask to be distributed with the result.
foreach(package libcli11-dev nlohmann-json3-dev libxxhash-dev)
  set(copyright /usr/share/doc/${package}/copyright)
  if(NOT EXISTS ${copyright})
    message(FATAL_ERROR "${copyright} is missing; Trivet's packages contain code of ${package}, and must contain its licence")
  endif()
  install(FILES ${copyright} DESTINATION share/doc/trivet RENAME copyright.${package} COMPONENT program)
  install(FILES ${copyright} DESTINATION share/doc/libtrivet-dev RENAME copyright.${package} COMPONENT development)
  install(FILES ${copyright} DESTINATION share/doc/libtrivet-c1 RENAME copyright.${package} COMPONENT c_library)
endforeach()
trivet_package(documentation trivet-doc SECTION doc
  DESCRIPTION "training engine for transformer models (documentation)"
  "The documentation of Trivet as HTML, in /usr/share/doc/trivet/html.")
set(CPACK_DEBIAN_DOCUMENTATION_PACKAGE_ARCHITECTURE all)

get_property(modules GLOBAL PROPERTY TRIVET_MODULES)
set(library_ucx UCX)
set(library_gloo gloo)
foreach(transport ucx gloo)
  if(transport IN_LIST modules)
    trivet_package(${transport} trivet-${transport} SECTION science BINARIES DEPENDS "trivet (= ${whole_version})" ENHANCES trivet
      DESCRIPTION "training engine for transformer models (${library_${transport}})"
      "The module with which ranks of Trivet on several hosts send messages over"
      "${library_${transport}}. Ranks of one host do not need it.")
  endif()
endforeach()
if(cuda IN_LIST modules)
  set(cuda_version ${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
  trivet_package(cuda trivet-cuda SECTION contrib/science BINARIES DEPENDS "trivet (= ${whole_version})" ENHANCES trivet
    RECOMMENDS "cuda-cudart-${cuda_version}, libcublas-${cuda_version}, libnccl2 (>= 2.27)"
    DESCRIPTION "training engine for transformer models (CUDA)"
    "The module with which Trivet trains on NVIDIA GPUs. It needs the CUDA"
    "runtime, cuBLAS and NCCL, which NVIDIA distributes.")
endif()
include(CPack)
