# Builds the CUDA backend, one module, libtrivet_cuda.so, that the program loads when a config requests it. It consists of all
# folders named cuda or nccl, which no other library includes (trivet_folder).
#
#   TRIVET_CUDA                AUTO: build it if nvcc is found; ON: fail if nvcc is not found; OFF
#   CMAKE_CUDA_ARCHITECTURES   default 80-real;90-real;90-virtual. Files *_sm90a.cu are compiled for sm_90a only.
#
# Where tests are built, tests/cuda/shim compiles the same sources with the C++ compiler.

# Sets `out` to all sources of the backend, for both compilers.
function(trivet_cuda_sources out)
  set(sources)
  foreach(folder core kernels comm engine)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS
      ${PROJECT_SOURCE_DIR}/${folder}/cuda/*.cpp ${PROJECT_SOURCE_DIR}/${folder}/cuda/*.cu
      ${PROJECT_SOURCE_DIR}/${folder}/nccl/*.cpp ${PROJECT_SOURCE_DIR}/${folder}/nccl/*.cu)
    list(APPEND sources ${found})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# Trivet's libraries that the backend uses.
set(TRIVET_CUDA_USES trivet_comm trivet_kernels)

set(TRIVET_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (if nvcc is found), ON or OFF")
set_property(CACHE TRIVET_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT TRIVET_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TRIVET_CUDA is ${TRIVET_CUDA}; use AUTO, ON or OFF")
endif()
set(TRIVET_CUDA_FOUND OFF)
if(TRIVET_CUDA STREQUAL OFF)
  return()
endif()
if(TRIVET_SANITIZE)
  if(TRIVET_CUDA STREQUAL ON)
    message(FATAL_ERROR "TRIVET_CUDA=ON and TRIVET_SANITIZE=${TRIVET_SANITIZE}: nvcc has no sanitizers; use only one of the two")
  endif()
  return()
endif()

# On many hosts nvcc is not in PATH: look where the toolkit usually is.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(TRIVET_NVCC nvcc HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(TRIVET_NVCC)
  if(TRIVET_NVCC)
    set(CMAKE_CUDA_COMPILER ${TRIVET_NVCC})
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "Architectures to compile for")
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(TRIVET_CUDA STREQUAL ON)
    message(FATAL_ERROR "TRIVET_CUDA=ON, but there is no nvcc in PATH, CUDACXX, CUDA_HOME/bin or /usr/local/cuda/bin. Install a "
      "CUDA toolkit of version 12 or newer (Debian: nvidia-cuda-toolkit is too old before 13; NVIDIA: cuda-toolkit) and NCCL "
      "(libnccl-dev), or configure with -DTRIVET_CUDA=OFF")
  endif()
  message(STATUS "CUDA backend: off, nvcc was not found")
  return()
endif()

enable_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER_ID STREQUAL NVIDIA OR CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
  if(TRIVET_CUDA STREQUAL ON)
    message(FATAL_ERROR "TRIVET_CUDA=ON needs nvcc 12.0 or newer (for C++20); "
      "${CMAKE_CUDA_COMPILER} is ${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION}")
  endif()
  message(STATUS "CUDA backend: off, ${CMAKE_CUDA_COMPILER} is older than nvcc 12.0")
  return()
endif()
# CMake 3.25.1 (Debian 12) does not know that nvcc has -std=c++20. If this were set before enable_language, its own test would
# fail.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

if(TRIVET_CUDA STREQUAL ON)
  find_package(CUDAToolkit REQUIRED)
  find_package(NCCL 2.27 REQUIRED)
else()
  find_package(CUDAToolkit)
  find_package(NCCL 2.27)
  if(NOT CUDAToolkit_FOUND OR NOT NCCL_FOUND)
    message(STATUS "CUDA backend: off, nvcc was found, but not all of the CUDA toolkit and NCCL (libnccl-dev)")
    return()
  endif()
endif()
set(TRIVET_CUDA_FOUND ON)
message(STATUS "CUDA backend: on, nvcc ${CMAKE_CUDA_COMPILER_VERSION}, NCCL ${NCCL_VERSION}, ${CMAKE_CUDA_ARCHITECTURES}")

# Use only the shared CUDA runtime: by default CMake would also compile for, and link with, the static one.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
# Targets:
#   trivet_cuda_objects   the backend, compiled once
#   trivet_cuda           the module
#   trivet_cuda_static    linked into test_gpu and the benchmarks, which call kernels directly
trivet_cuda_sources(sources)
# Products and sums are not contracted, as in the CPU versions of these kernels (CMakeLists.txt), so that both round in the same
# way.
file(GLOB fused_cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/fused/*.cu)
set_source_files_properties(${fused_cuda_kernels} PROPERTIES COMPILE_OPTIONS "--fmad=false")
# The architecture can only be set for a whole target, so files *_sm90a.cu form a separate target.
set(sm90a ${sources})
list(FILTER sm90a INCLUDE REGEX "_sm90a\\.cu$")
list(FILTER sources EXCLUDE REGEX "_sm90a\\.cu$")
add_library(trivet_cuda_objects OBJECT ${sources})
set(objects trivet_cuda_objects)
if(sm90a)
  add_library(trivet_cuda_sm90a OBJECT ${sm90a})
  set_target_properties(trivet_cuda_sm90a PROPERTIES CUDA_ARCHITECTURES 90a-real)
  list(APPEND objects trivet_cuda_sm90a)
endif()
set(cuda_libraries ${TRIVET_CUDA_USES} CUDA::cudart CUDA::cublas CUDA::cublasLt NCCL::NCCL)
function(trivet_cuda_compile_options target)
  target_compile_options(${target} PRIVATE
    # No -use_fast_math: kernels call the fast functions explicitly where they want them.
    $<$<COMPILE_LANGUAGE:CUDA>:-O3 -lineinfo --expt-relaxed-constexpr -Werror=cross-execution-space-call -Xptxas=--warn-on-spills
      -Xcompiler=-Wall,-Wextra,-Wno-restrict,-Wno-unknown-pragmas,-Wno-missing-field-initializers>
    # -Wno-maybe-uninitialized: g++ 12 warns about the loop in Shape's constructor when it is unrolled.
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-restrict -Wno-maybe-uninitialized -Wno-missing-field-initializers>)
endfunction()
set(object_files "")
foreach(target ${objects})
  target_link_libraries(${target} PRIVATE ${cuda_libraries})
  set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Shared UNITY_BUILD OFF)
  trivet_cuda_compile_options(${target})
  list(APPEND object_files $<TARGET_OBJECTS:${target}>)
endforeach()

add_library(trivet_cuda MODULE ${object_files})
target_link_libraries(trivet_cuda PRIVATE ${cuda_libraries})
target_link_options(trivet_cuda PRIVATE -Wl,--no-undefined)
set_target_properties(trivet_cuda PROPERTIES LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY Shared
  BUILD_RPATH "$ORIGIN" INSTALL_RPATH "${CUDAToolkit_LIBRARY_DIR}")
add_library(trivet_cuda_static STATIC EXCLUDE_FROM_ALL ${object_files})
target_link_libraries(trivet_cuda_static PUBLIC ${cuda_libraries})
set_target_properties(trivet_cuda_static PROPERTIES LINKER_LANGUAGE CXX)
set_property(GLOBAL APPEND PROPERTY TRIVET_MODULES cuda)
if(TRIVET_INSTALL)
  install(TARGETS trivet_cuda LIBRARY DESTINATION ${TRIVET_MODULE_DIR} COMPONENT cuda)
endif()
