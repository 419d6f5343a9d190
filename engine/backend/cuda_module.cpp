#include "engine/backend/cuda_module.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <string_view>

#include "core/error.h"
#include "core/module_file.h"

namespace trivet {
namespace {

constexpr const char* kFile = "libtrivet_cuda.so";

std::atomic<const CudaModule*> module_in_use{nullptr};

const CudaModule& open_cuda_module() {
  const OpenedModule opened = open_module({.file = kFile, .variable = "TRIVET_CUDA_MODULE", .entry = kCudaModuleEntry});
  if (opened.place.empty())
    throw DeviceError(ExitCode::Usage,
                      fmt::format("cuda: the module {} was not found; install the package trivet-cuda, or build with "
                                  "-DTRIVET_CUDA=ON on a machine with nvcc, or set device to \"cpu\" ({})",
                                  kFile, opened.failures));
  const auto entry = reinterpret_cast<const CudaModule* (*)()>(opened.entry);
  const CudaModule* module = entry ? entry() : nullptr;
  if (!module || std::string_view(module->interface) != kCudaInterface)
    throw DeviceError(ExitCode::VersionSkew,
                      fmt::format("cuda: {} is for \"{}\", but this program is \"{}\"; install both from the same build",
                                  opened.place, module ? module->interface : "no version of Trivet", kCudaInterface));
  return *module;
}

}  // namespace

const CudaModule& cuda_module() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!module_in_use) module_in_use = &open_cuda_module();
  return *module_in_use;
}

void use_cuda_module(const CudaModule& module) { module_in_use = &module; }

Device find_device(std::string& reason) {
  try {
    const CudaModule::Devices devices = cuda_module().devices();
    if (devices.count > 0) return Device::Cuda;
    reason = devices.reason;
  } catch (const DeviceError& error) {
    reason = error.what();
  }
  return Device::Cpu;
}

std::unique_ptr<Backend> make_backend(Device device, const BackendOptions& options) {
  if (device != Device::Cuda) return make_cpu_backend(options.threads);
  const CudaModule& module = cuda_module();
  const CudaModule::Devices devices = module.devices();
  if (devices.count == 0)
    throw DeviceError(ExitCode::Usage, fmt::format("device: \"cuda\" was requested, but there is no GPU: {}; set device to "
                                                   "\"cpu\", or to \"auto\" to use a GPU only if there is one",
                                                   devices.reason));
  return module.make_backend(options);
}

}  // namespace trivet
