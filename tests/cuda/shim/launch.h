// Launches kernels: arguments are copied, and the stream's thread runs the blocks.
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime_api.h"

struct cudaLaunchAttribute;  // none is supported
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

namespace cuda_shim {

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread);
cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t occupancy(int* blocks, const void* kernel, int block_threads, size_t dynamic_shared_bytes);

inline constexpr size_t kMaxParameterBytes = 4096;  // every supported toolkit and architecture takes as many

}  // namespace cuda_shim

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<std::remove_cv_t<Parameters>> && ...), "arguments travel as bytes");
  static_assert((sizeof(Parameters) + ... + 0) <= cuda_shim::kMaxParameterBytes, "too many bytes of arguments");
  const std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  return cuda_shim::launch(*config, reinterpret_cast<const void*>(kernel), [kernel, values] { std::apply(kernel, values); });
}

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  return cuda_shim::set_attribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int block_threads, size_t shared_bytes) {
  return cuda_shim::occupancy(blocks, reinterpret_cast<const void*>(kernel), block_threads, shared_bytes);
}
