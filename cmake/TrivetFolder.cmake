# trivet_folder(NAME [AS_PROGRAM PROGRAM] USES targets... [PRIVATE_USES targets...])
#
# One folder = one static library trivet_NAME (or one program), made of every .cpp below the folder, without those in folders
# named cuda or nccl: the CUDA backend (TrivetCuda.cmake).
# A folder without sources yet is an interface library, so that the chain of folders stays whole. What is installed is in the
# global properties TRIVET_LIBRARIES and TRIVET_PROGRAMS (TrivetInstall.cmake).
function(trivet_folder name)
  cmake_parse_arguments(arg "" "AS_PROGRAM" "USES;PRIVATE_USES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${name}/(.*/)?(cuda|nccl)/")
  set(target trivet_${name})
  if(arg_AS_PROGRAM)
    if(NOT sources)
      return()
    endif()
    set(target ${arg_AS_PROGRAM})
    add_executable(${target} ${sources})
    set_property(GLOBAL APPEND PROPERTY TRIVET_PROGRAMS ${target})
  else()
    set(linkage INTERFACE)
    if(sources)
      set(linkage STATIC)
    endif()
    add_library(${target} ${linkage} ${sources})
    add_library(trivet::${name} ALIAS ${target})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
    set_property(GLOBAL APPEND PROPERTY TRIVET_LIBRARIES ${target})
    if(NOT sources)
      target_link_libraries(${target} INTERFACE ${arg_USES})
      return()
    endif()
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/trivet>)
  target_link_libraries(${target} PUBLIC ${arg_USES} PRIVATE ${arg_PRIVATE_USES})
  trivet_compile_options(${target})
endfunction()

function(trivet_compile_options target)
  # -Wno-restrict: g++ 12 warns of std::string's own copying (its bug 105651).
  target_compile_options(${target} PRIVATE -Wno-restrict -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wconversion -Wno-sign-conversion)
  if(TRIVET_SANITIZE)
    string(REPLACE ";" "," sanitizers "${TRIVET_SANITIZE}")
    # -g1: a sanitizer's report needs lines, and no more.
    target_compile_options(${target} PUBLIC -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    target_link_options(${target} PUBLIC -fsanitize=${sanitizers})
  endif()
endfunction()
