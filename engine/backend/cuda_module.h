// The interface to the module libtrivet_cuda.so (core/module_file.h), which is opened only if a config's device is "cuda" or
// "auto" (docs/cuda.md). TRIVET_CUDA_MODULE names another file. Programs that link the module in call use_cuda_module.
#pragma once

#include <memory>
#include <string>

#include "engine/backend/backend.h"

namespace trivet {

struct CudaModule {
  const char* interface = "";  // must be kCudaInterface
  // The number of GPUs that can be used; if there is none, the reason.
  struct Devices {
    int count = 0;
    std::string reason;
  };
  Devices (*devices)() = nullptr;
  std::unique_ptr<Backend> (*make_backend)(const BackendOptions& options) = nullptr;
};

// Must change with every change of the interface that module and program share.
inline constexpr const char* kCudaInterface = "trivet 0.1.0, backend 2";
inline constexpr const char* kCudaModuleEntry = "trivet_cuda_module";  // const CudaModule* (*)()

// Throws DeviceError when there is no module (naming the places that were tried), or when it has a different version
// (VersionSkew).
const CudaModule& cuda_module();
void use_cuda_module(const CudaModule& module);

// Returns Cuda if a module and a GPU are found; otherwise Cpu, and `reason` says why.
Device find_device(std::string& reason);

}  // namespace trivet
