#include "core/cuda/device.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "core/cuda/error.h"
#include "core/error.h"

namespace trivet::cuda {
namespace {

// Needed for bfloat16 products and for copies to shared memory that bypass registers.
constexpr int kLeastMajor = 8;
constexpr int kLeastSharedBytes = 163 * 1024;  // per block, opt-in

std::string visible_devices() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible) : "";
}

// Whoever started this rank shows it one GPU, its own (srun --gpus-per-task=1, a script that sets the variable for each rank).
// Ranks that were shown the same one are refused when they meet (comm/nccl/places.h).
bool is_shown_one_device() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible && *visible != '\0' && std::string_view(visible).find(',') == std::string_view::npos;
}

}  // namespace

DeviceCount count_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return {0, describe(error)};
  }
  return {count, count == 0 ? describe(cudaErrorNoDevice) : ""};
}

bool sharing_allowed() {
  const char* share = std::getenv("TRIVET_SHARE_GPU");
  return share && std::string_view(share) == "1";
}

int choose_device(int local_rank) {
  const DeviceCount devices = count_devices();
  if (devices.count == 0) throw DeviceError(ExitCode::Usage, "cuda: " + devices.reason);
  if (local_rank < devices.count) return local_rank;
  if (devices.count == 1 && is_shown_one_device()) return 0;
  if (sharing_allowed()) return local_rank % devices.count;
  throw DeviceError(
      ExitCode::Usage,
      fmt::format("cuda: rank {} of this host has no GPU: there {}{}; start no more ranks on a host than it has "
                  "GPUs (TRIVET_SHARE_GPU=1 lets ranks share them, slowly, for a test)",
                  local_rank, devices.count == 1 ? "is 1" : fmt::format("are {}", devices.count), visible_devices()));
}

DeviceInfo open_device(int index) {
  CUDA_CHECK(cudaSetDevice(index));
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  if (properties.major < kLeastMajor)
    throw DeviceError(ExitCode::Usage, fmt::format("cuda:{}: {} has compute capability {}.{}; {}.0 (A100) or newer is needed",
                                                   index, properties.name, properties.major, properties.minor, kLeastMajor));
  int shared_bytes = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
  if (shared_bytes < kLeastSharedBytes)
    throw DeviceError(
        ExitCode::Usage,
        fmt::format(
            "cuda:{}: {} (compute capability {}.{}) has {} KiB of shared memory per block; attention needs {} KiB (A100, "
            "H100, H200)",
            index, properties.name, properties.major, properties.minor, shared_bytes / 1024, kLeastSharedBytes / 1024));
  return {.index = index,
          .name = properties.name,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .multiprocessors = properties.multiProcessorCount,
          .capability_major = properties.major,
          .capability_minor = properties.minor};
}

DeviceScope::DeviceScope(int device) {
  CUDA_CHECK(cudaGetDevice(&before_));
  if (device != before_) CUDA_CHECK(cudaSetDevice(device));
}
DeviceScope::~DeviceScope() { cudaSetDevice(before_); }

}  // namespace trivet::cuda
