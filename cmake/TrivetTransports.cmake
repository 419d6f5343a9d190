# Builds the modules with transports between hosts, which the program opens only for jobs on several hosts
# (comm/transport/transport_module.h). Each is a folder of comm/ that no other library includes.
#
#   TRIVET_UCX   AUTO: build libtrivet_ucx.so if UCX is found (Debian: libucx-dev); ON: fail if it is not found; OFF
set(TRIVET_UCX AUTO CACHE STRING "Build the transport over UCX: AUTO (if UCX is found), ON or OFF")
set_property(CACHE TRIVET_UCX PROPERTY STRINGS AUTO ON OFF)
if(NOT TRIVET_UCX MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TRIVET_UCX is ${TRIVET_UCX}; use AUTO, ON or OFF")
endif()
if(TRIVET_UCX STREQUAL OFF)
  return()
endif()
find_package(PkgConfig)
if(PkgConfig_FOUND)
  pkg_check_modules(UCX IMPORTED_TARGET ucx>=1.11)
endif()
if(NOT UCX_FOUND)
  if(TRIVET_UCX STREQUAL ON)
    message(FATAL_ERROR "TRIVET_UCX=ON, but pkg-config does not find UCX 1.11 or newer; install libucx-dev and pkg-config, or "
      "configure with -DTRIVET_UCX=OFF")
  endif()
  message(STATUS "UCX, for jobs on several hosts: off, it was not found (libucx-dev)")
  return()
endif()
message(STATUS "UCX, for jobs on several hosts: on, ${UCX_VERSION}")

# trivet_ucx_objects is the transport, compiled once; tests link it, too.
file(GLOB ucx_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/comm/ucx/*.cpp)
add_library(trivet_ucx_objects OBJECT ${ucx_sources})
target_link_libraries(trivet_ucx_objects PUBLIC trivet_comm PkgConfig::UCX)
trivet_compile_options(trivet_ucx_objects)
add_library(trivet_ucx MODULE $<TARGET_OBJECTS:trivet_ucx_objects>)
target_link_libraries(trivet_ucx PRIVATE trivet_comm PkgConfig::UCX)
target_link_options(trivet_ucx PRIVATE -Wl,--no-undefined)
if(TRIVET_INSTALL)
  install(TARGETS trivet_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
