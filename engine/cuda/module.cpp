// What the program finds in libtrivet_cuda.so.
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
  static const trivet::CudaModule module{trivet::kCudaInterface, devices, trivet::make_cuda_backend};
  return &module;
}
