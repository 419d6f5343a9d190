# Finds utf8proc (Debian: libutf8proc-dev), which has no CMake package file in Debian 12. Defines Utf8proc::utf8proc and Utf8proc_VERSION.
find_path(Utf8proc_INCLUDE_DIR utf8proc.h)
find_library(Utf8proc_LIBRARY utf8proc)
if(Utf8proc_INCLUDE_DIR AND EXISTS ${Utf8proc_INCLUDE_DIR}/utf8proc.h)
  file(STRINGS ${Utf8proc_INCLUDE_DIR}/utf8proc.h _version REGEX "#define UTF8PROC_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*" "\\1.\\2" Utf8proc_VERSION "${_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Utf8proc REQUIRED_VARS Utf8proc_LIBRARY Utf8proc_INCLUDE_DIR VERSION_VAR Utf8proc_VERSION)
if(Utf8proc_FOUND AND NOT TARGET Utf8proc::utf8proc)
  add_library(Utf8proc::utf8proc UNKNOWN IMPORTED)
  set_target_properties(Utf8proc::utf8proc PROPERTIES IMPORTED_LOCATION ${Utf8proc_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Utf8proc_INCLUDE_DIR})
endif()
