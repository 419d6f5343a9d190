// The limits of a launch are those of the architectures that Trivet is built for (CUDA C++ Programming Guide, table "Technical
// Specifications per Compute Capability").
#include "launch.h"

#include <algorithm>

#include "block.h"
#include "runtime.h"

namespace cuda_shim {
namespace {

constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr unsigned kMaxGridX = 0x7fffffff, kMaxGridYZ = 65535;
constexpr unsigned kMaxBlock = 1024, kMaxBlockZ = 64;

bool grid_fits(dim3 grid) {
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= kMaxGridX && grid.y <= kMaxGridYZ && grid.z <= kMaxGridYZ;
}

bool block_fits(dim3 block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= kMaxBlock && block.z <= kMaxBlockZ;
}

size_t shared_limit(const void* kernel) {
  const Locked lock;
  const auto& limits = runtime().dynamic_shared_limits;
  const auto found = limits.find({current_device(), kernel});
  return found == limits.end() ? kDefaultSharedBytes : static_cast<size_t>(found->second);
}

}  // namespace

size_t max_shared_bytes() {
  switch (configuration().capability) {
    case 80:
    case 87: return 163 << 10;
    case 86:
    case 89:
    case 120: return 99 << 10;
    default: return configuration().capability < 80 ? 64 << 10 : 227 << 10;
  }
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  return call([&] {
    if (!grid_fits(config.gridDim) || !block_fits(config.blockDim)) return cudaErrorInvalidConfiguration;
    if (config.dynamicSmemBytes > shared_limit(kernel) || config.numAttrs != 0) return cudaErrorInvalidValue;
    const cudaStream_t stream = resolve(config.stream);
    if (stream->device != current_device()) return cudaErrorInvalidResourceHandle;
    ++runtime().counts.launches;
    stream->enqueue([=, device = stream->device, thread = std::move(thread)] {
      const std::string failure = BlockRunner::current().run(config.gridDim, config.blockDim, config.dynamicSmemBytes, thread);
      if (!failure.empty()) break_device(device, cudaErrorLaunchFailure, failure);
    });
    return cudaSuccess;
  });
}

cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call([&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;  // a hint
    if (value < 0 || static_cast<size_t>(value) > max_shared_bytes()) return cudaErrorInvalidValue;
    const Locked lock;
    runtime().dynamic_shared_limits[{current_device(), kernel}] = value;
    return cudaSuccess;
  });
}

// Considers threads and shared memory only: how many registers a kernel needs is not known here.
cudaError_t occupancy(int* blocks, const void* kernel, int block_threads, size_t dynamic_shared_bytes) {
  return call([&] {
    if (block_threads <= 0 || dynamic_shared_bytes > shared_limit(kernel)) return cudaErrorInvalidValue;
    const size_t each = dynamic_shared_bytes + 1024;  // the system keeps 1 KiB
    *blocks =
        static_cast<int>(std::min<size_t>({2048 / static_cast<size_t>(block_threads), 32, (max_shared_bytes() + 1024) / each}));
    return cudaSuccess;
  });
}

}  // namespace cuda_shim
