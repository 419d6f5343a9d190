# Finds the 8-bit library of PCRE2 (Debian: libpcre2-dev), which has no CMake package file. Defines PCRE2::8bit and PCRE2_VERSION.
find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
if(PCRE2_INCLUDE_DIR AND EXISTS ${PCRE2_INCLUDE_DIR}/pcre2.h)
  file(STRINGS ${PCRE2_INCLUDE_DIR}/pcre2.h _version REGEX "#define PCRE2_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*PCRE2_MAJOR +([0-9]+).*PCRE2_MINOR +([0-9]+).*" "\\1.\\2" PCRE2_VERSION "${_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PCRE2 REQUIRED_VARS PCRE2_LIBRARY PCRE2_INCLUDE_DIR VERSION_VAR PCRE2_VERSION)
if(PCRE2_FOUND AND NOT TARGET PCRE2::8bit)
  add_library(PCRE2::8bit UNKNOWN IMPORTED)
  set_target_properties(PCRE2::8bit PROPERTIES IMPORTED_LOCATION ${PCRE2_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${PCRE2_INCLUDE_DIR} INTERFACE_COMPILE_DEFINITIONS PCRE2_CODE_UNIT_WIDTH=8)
endif()
