// The entry point of libtrivet_cuda.so.
#include <cstdlib>

#include "core/cuda/device.h"
#include "engine/backend/cuda_module.h"
#include "engine/cuda/cuda_backend.h"

namespace {

trivet::CudaModule::Devices devices() {
  const trivet::cuda::DeviceCount found = trivet::cuda::count_devices();
  return {found.count, found.reason};
}

}  // namespace

extern "C" const trivet::CudaModule* trivet_cuda_module() {
  // Must be set before CUDA starts. A receive that waits for its sender must not block work of other streams, so each stream
  // gets its own hardware queue, as far as they suffice (the default is 8).
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  static const trivet::CudaModule module{trivet::kCudaInterface, devices, trivet::make_cuda_backend};
  return &module;
}
