# `cmake --install` puts these files under a prefix. Each belongs to a component; TrivetPackages.cmake makes a Debian package of
# each component but `sources`.
#
#   program         bin/trivet, share/trivet/configs/, share/man/man1/, and the completions of bash, zsh and fish
#   development     lib/libtrivet_*.a, one per folder; include/trivet/, the headers in their folders (#include "engine/engine.h"; for
#                   C: #include <trivet/c.h>; for Horovod's users: #include <trivet/hvd.h>; for libtorch: #include "libtorch/sharded.h");
#                   share/doc/trivet/examples/, the sources of the examples; lib/cmake/trivet/, find_package(trivet)
#                   with the targets trivet::trivet (everything), trivet::core ...; lib/pkgconfig/trivet.pc and trivet_c.pc
#   c_library       lib/libtrivet_c.so.1, the C API, which needs none of the other libraries
#   ucx, gloo       lib/trivet/libtrivet_ucx.so and libtrivet_gloo.so, messages between hosts, if built (TrivetTransports.cmake)
#   cuda            lib/trivet/libtrivet_cuda.so, the CUDA backend, if built (TrivetCuda.cmake)
#   documentation   share/doc/trivet/html/, if scripts/docs has made it
#   sources         share/doc/trivet/, the documentation as it is in the repository, and the licence
#
# scripts/test_install builds tests/consumer against such a tree.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY TRIVET_LIBRARIES)
get_property(programs GLOBAL PROPERTY TRIVET_PROGRAMS)
get_property(modules GLOBAL PROPERTY TRIVET_MODULES)
list(TRANSFORM modules PREPEND trivet_)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/trivet)

add_custom_target(installed)  # builds what is installed, without tests and examples
add_dependencies(installed ${libraries} ${programs} trivet_c ${modules})

# The program already uses the target name `trivet`, so the target that stands for all libraries has another name here.
add_library(trivet_all INTERFACE)
add_library(trivet::trivet ALIAS trivet_all)
set_target_properties(trivet_all PROPERTIES EXPORT_NAME trivet)
target_link_libraries(trivet_all INTERFACE ${libraries})

install(TARGETS ${libraries} trivet_all EXPORT trivetTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(TARGETS trivet_c EXPORT trivetTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT c_library NAMELINK_COMPONENT development)
install(FILES c/trivet/c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trivet COMPONENT development)
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(EXPORT trivetTargets NAMESPACE trivet:: DESTINATION ${package_dir} COMPONENT development)

foreach(library ${libraries})
  string(REPLACE trivet_ "" folder ${library})
  if(NOT IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${folder})
    continue()  # a room of engine/, whose headers are installed with that folder
  endif()
  # Excluded are headers that only the sources in the same folder may include.
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trivet COMPONENT development FILES_MATCHING PATTERN "*.h"
    PATTERN "kernels/cpu" EXCLUDE PATTERN "cuda" EXCLUDE PATTERN "nccl" EXCLUDE PATTERN "ucx" EXCLUDE PATTERN "gloo" EXCLUDE PATTERN "strict_json.h" EXCLUDE)
endforeach()
install(FILES trivet.h hvd.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trivet COMPONENT development)
install(FILES examples/09_libtorch/sharded.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trivet/libtorch COMPONENT development)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development PATTERN "missing" EXCLUDE)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/trivet COMPONENT program FILES_MATCHING PATTERN "*.json")
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT sources)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT sources FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/html DESTINATION share/doc/trivet COMPONENT documentation OPTIONAL)

# The program describes its own command line, so manual and completions cannot differ from it. It does so at installation, when it
# has been built. (The script compares names of components with if(), which would take them for variables of the same name.)
set(description ${CMAKE_CURRENT_BINARY_DIR}/self_description)
set(describe ${CMAKE_CURRENT_SOURCE_DIR}/cmake/describe_program.cmake)
install(CODE "
  set(TRIVET_PROGRAM \"$<TARGET_FILE:trivet>\")
  set(TRIVET_DESCRIPTION \"${description}\")
  set(TRIVET_COMPRESS ${TRIVET_PACKAGES})
  include(\"${describe}\")" COMPONENT program)
install(DIRECTORY ${description}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
install(FILES ${description}/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trivet
  COMPONENT program)
install(FILES ${description}/completion.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _trivet
  COMPONENT program)
install(FILES ${description}/completion.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME trivet.fish
  COMPONENT program)

# trivet.pc: all libraries are static, so what they use is needed by every program. A library stands before those that it uses.
set(TRIVET_PC_LIBS "")
foreach(library ${libraries})
  get_target_property(type ${library} TYPE)
  if(type STREQUAL STATIC_LIBRARY)
    set(TRIVET_PC_LIBS "-l${library} ${TRIVET_PC_LIBS}")
  endif()
endforeach()
set(TRIVET_PC_SYSTEM_LIBS "-ldnnl")
foreach(library ${OpenMP_CXX_LIB_NAMES} rt ${CMAKE_DL_LIBS})
  string(APPEND TRIVET_PC_SYSTEM_LIBS " -l${library}")
endforeach()
file(RELATIVE_PATH TRIVET_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/trivet.pc.in ${CMAKE_CURRENT_BINARY_DIR}/trivet.pc @ONLY)
configure_file(c/trivet_c.pc.in ${CMAKE_CURRENT_BINARY_DIR}/trivet_c.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trivet.pc ${CMAKE_CURRENT_BINARY_DIR}/trivet_c.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

configure_package_config_file(cmake/trivetConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/trivetConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/trivetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trivetConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/trivetConfigVersion.cmake
  cmake/FindOneDNN.cmake cmake/FindPCRE2.cmake cmake/FindSodium.cmake cmake/FindUtf8proc.cmake DESTINATION ${package_dir} COMPONENT development)
