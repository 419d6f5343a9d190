#include "core/cuda/error.h"

#include <fmt/format.h>

#include <cstdlib>

#include "core/error.h"

namespace trivet::cuda {
namespace {

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

// The oldest driver branch that runs programs of this toolkit (CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required
// Driver Version for CUDA Minor Version Compatibility").
const char* driver_for(int runtime_version) {
  switch (runtime_version / 1000) {
    case 12: return "525";
    case 13: return "580";
    default: return nullptr;
  }
}

std::string what_driver() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const char* branch = driver_for(runtime);
  const std::string needed = branch ? fmt::format("driver {} or newer", branch) : "a newer driver";
  if (driver == 0)
    return fmt::format("no NVIDIA driver is installed here; this build uses CUDA {} and needs {}", version(runtime), needed);
  return fmt::format("the NVIDIA driver supports CUDA {}; this build uses CUDA {} and needs {}", version(driver),
                     version(runtime), needed);
}

std::string advice(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver: return what_driver();
    case cudaErrorNoDevice: {
      const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
      return visible ? fmt::format("CUDA_VISIBLE_DEVICES={} hides all GPUs, or this machine has none", visible)
                     : "this machine has no GPU, or this user or container may not use it (nvidia-smi lists the GPUs)";
    }
    case cudaErrorNoKernelImageForDevice:
      return "this build has no code for this GPU; rebuild with -DCMAKE_CUDA_ARCHITECTURES set to its compute capability";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "a kernel failed before this call; CUDA_LAUNCH_BLOCKING=1 shows which one, and compute-sanitizer shows where";
    case cudaErrorDevicesUnavailable: return "another process has exclusive use of the GPU (nvidia-smi shows which)";
    case cudaErrorECCUncorrectable: return "the GPU's memory failed: take this host out of the job";
    case cudaErrorSystemDriverMismatch: return "the driver was changed while it was in use: restart the host";
    default: return "";
  }
}

ExitCode exit_code(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorNoKernelImageForDevice: return ExitCode::Usage;
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorSystemDriverMismatch: return ExitCode::Device;
    default: return ExitCode::Internal;
  }
}

// "cuda:1", or "cuda" where there is no device at all.
std::string device_name() {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) return fmt::format("cuda:{}", device);
  cudaGetLastError();
  return "cuda";
}

}  // namespace

std::string describe(cudaError_t error) {
  const std::string what = advice(error);
  return fmt::format("{} ({}){}{}", cudaGetErrorName(error), cudaGetErrorString(error), what.empty() ? "" : "; ", what);
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  const std::string message = fmt::format("{}: {}: {}", device_name(), call, describe(error));
  if (error == cudaErrorMemoryAllocation) throw OutOfMemoryError(message);
  throw DeviceError(exit_code(error), message);
}

}  // namespace trivet::cuda
