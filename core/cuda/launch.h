// Launching kernels, from any C++ file:
//
//   TRIVET_LAUNCH(row_sums<float>, rows, 128, 0, stream, x.data, out.data, cols);
//   TRIVET_LAUNCH((row_sums<float, 4>), dim3(1, rows), 128, shared_bytes, stream, ...);   // parentheses because of the comma
//
// Arguments are converted to the kernel's parameters. A launch that CUDA refuses (an empty grid, too large a block, more
// dynamic shared memory than allow_dynamic_shared() requested) throws a DeviceError that names the kernel; an error while it
// runs is reported by a later call.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "core/cuda/error.h"

namespace trivet::cuda {

template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t dynamic_shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared_bytes;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

// Must be called before the first launch with more than 48 KiB of dynamic shared memory on a device. It is cheap, but not free:
// call it once per kernel and device, not per launch.
template <typename... Parameters>
void allow_dynamic_shared(void (*kernel)(Parameters...), size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize)");
}

}  // namespace trivet::cuda

#define TRIVET_LAUNCH(kernel, grid, block, dynamic_shared_bytes, stream, ...) \
  ::trivet::cuda::launch(#kernel, kernel, grid, block, dynamic_shared_bytes, stream __VA_OPT__(, ) __VA_ARGS__)

// Declares, in a kernel, `type* const name`: the block's dynamic shared memory, 128-byte aligned as sm_90 bulk copies require.
#ifndef TRIVET_DYNAMIC_SHARED  // the tests' fake device has its own
#define TRIVET_DYNAMIC_SHARED(type, name)                        \
  extern __shared__ __align__(128) unsigned char name##_bytes[]; \
  type* const name = reinterpret_cast<type*>(name##_bytes)
#endif
