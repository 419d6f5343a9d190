# libtrivet_c.so: the functions of trivet/c.h for programs in C. Only these are exported (c/exports.map), so it can be used together
# with other versions of the libraries that it is linked with.
enable_language(C)
file(GLOB sources_of_c CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/c/*.cpp)
add_library(trivet_c SHARED ${sources_of_c})
add_library(trivet::c ALIAS trivet_c)
set_target_properties(trivet_c PROPERTIES EXPORT_NAME c SOVERSION 1 VERSION 1.0 UNITY_BUILD OFF CXX_VISIBILITY_PRESET hidden
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/c/exports.map)
target_include_directories(trivet_c PRIVATE ${PROJECT_SOURCE_DIR}
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/c> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(trivet_c PRIVATE $<BUILD_INTERFACE:trivet_embed>)
target_link_options(trivet_c PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/c/exports.map)
trivet_compile_options(trivet_c)

function(trivet_c_options target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -pedantic -Werror)
  target_link_libraries(${target} PRIVATE trivet_c)
endfunction()
