# Finds libsodium (Debian: libsodium-dev), which has no CMake package file. Defines Sodium::sodium and Sodium_VERSION.
find_path(Sodium_INCLUDE_DIR sodium.h)
find_library(Sodium_LIBRARY sodium)
if(Sodium_INCLUDE_DIR AND EXISTS ${Sodium_INCLUDE_DIR}/sodium/version.h)
  file(STRINGS ${Sodium_INCLUDE_DIR}/sodium/version.h _version REGEX "#define SODIUM_VERSION_STRING ")
  string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" Sodium_VERSION "${_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Sodium REQUIRED_VARS Sodium_LIBRARY Sodium_INCLUDE_DIR VERSION_VAR Sodium_VERSION)
if(Sodium_FOUND AND NOT TARGET Sodium::sodium)
  add_library(Sodium::sodium UNKNOWN IMPORTED)
  set_target_properties(Sodium::sodium PROPERTIES IMPORTED_LOCATION ${Sodium_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Sodium_INCLUDE_DIR})
endif()
