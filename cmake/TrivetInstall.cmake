# `cmake --install` puts these files under a prefix:
#
#   bin/trivet                     the program
#   lib/libtrivet_*.a              one library per folder
#   lib/libtrivet_cuda.so          the CUDA backend, if it is built (TrivetCuda.cmake)
#   lib/libtrivet_ucx.so           messages between hosts, if it is built (TrivetTransports.cmake)
#   lib/libtrivet_gloo.so          the same
#   lib/libtrivet_c.so.1           the C API, with lib/pkgconfig/trivet_c.pc; it needs none of the other libraries
#   lib/cmake/trivet/              find_package(trivet), with the targets trivet::trivet (everything), trivet::core, trivet::zero ...
#   include/trivet/                the headers, in their folders: #include "engine/engine.h"; for C: #include <trivet/c.h>; for
#                                  Horovod's users: #include <trivet/hvd.h>
#   share/trivet/configs/          example configs
#   share/doc/trivet/              this documentation and the licence
#
# scripts/test_install builds tests/consumer against such a tree.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY TRIVET_LIBRARIES)
get_property(programs GLOBAL PROPERTY TRIVET_PROGRAMS)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/trivet)

# The program already uses the target name `trivet`, so the target that stands for all libraries has another name here.
add_library(trivet_all INTERFACE)
add_library(trivet::trivet ALIAS trivet_all)
set_target_properties(trivet_all PROPERTIES EXPORT_NAME trivet)
target_link_libraries(trivet_all INTERFACE ${libraries})

install(TARGETS ${libraries} trivet_all EXPORT trivetTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS trivet_c EXPORT trivetTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES c/trivet/c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trivet)
configure_file(c/trivet_c.pc.in ${CMAKE_CURRENT_BINARY_DIR}/trivet_c.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trivet_c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT trivetTargets NAMESPACE trivet:: DESTINATION ${package_dir})

foreach(library ${libraries})
  string(REPLACE trivet_ "" folder ${library})
  if(NOT IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${folder})
    continue()  # a room of engine/, whose headers are installed with that folder
  endif()
  # Excluded are headers that only the sources in the same folder may include.
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trivet FILES_MATCHING PATTERN "*.h"
    PATTERN "kernels/cpu" EXCLUDE PATTERN "cuda" EXCLUDE PATTERN "nccl" EXCLUDE PATTERN "ucx" EXCLUDE PATTERN "gloo" EXCLUDE PATTERN "strict_json.h" EXCLUDE)
endforeach()
install(FILES trivet.h hvd.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trivet)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/trivet FILES_MATCHING PATTERN "*.json")
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")

configure_package_config_file(cmake/trivetConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/trivetConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/trivetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trivetConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/trivetConfigVersion.cmake
  cmake/FindOneDNN.cmake cmake/FindSodium.cmake DESTINATION ${package_dir})
