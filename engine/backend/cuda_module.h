// The way into libtrivet_cuda.so, which is opened when a config asks for CUDA and never otherwise (docs/cuda.md).
//
// It is looked for in $TRIVET_CUDA_MODULE (a file), beside the program, in ../lib from there, and where the system looks for
// libraries. Programs that link it in say so with use_cuda_module.
#pragma once

#include <memory>
#include <string>

#include "engine/backend/backend.h"

namespace trivet {

struct CudaModule {
  const char* interface = "";  // must be kCudaInterface
  // GPUs that can be used; when there is none, why.
  struct Devices {
    int count = 0;
    std::string reason;
  };
  Devices (*devices)() = nullptr;
  std::unique_ptr<Backend> (*make_backend)(const BackendOptions& options) = nullptr;
};

// Changes with every change of what module and program share.
inline constexpr const char* kCudaInterface = "trivet 0.1.0, backend 2";
inline constexpr const char* kCudaModuleEntry = "trivet_cuda_module";  // const CudaModule* (*)()

// Throws DeviceError: no module (with the places that were tried), or one of another version (VersionSkew).
const CudaModule& cuda_module();
void use_cuda_module(const CudaModule& module);

// Cuda where a module and a GPU are found, else Cpu; `reason` says why not.
Device find_device(std::string& reason);

}  // namespace trivet
