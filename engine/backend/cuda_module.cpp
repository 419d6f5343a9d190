#include "engine/backend/cuda_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace trivet {
namespace {

constexpr const char* kFile = "libtrivet_cuda.so";

std::atomic<const CudaModule*> module_in_use{nullptr};

std::vector<std::string> places() {
  if (const char* chosen = std::getenv("TRIVET_CUDA_MODULE")) return {chosen};
  std::vector<std::string> places;
  std::error_code no_such_link;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", no_such_link);
  if (!no_such_link)
    for (const auto& folder : {program.parent_path(), program.parent_path().parent_path() / "lib"})
      places.push_back((folder / kFile).string());
  places.push_back(kFile);
  return places;
}

// The module is never closed, because what it created may live until the process ends.
const CudaModule& open_module() {
  std::vector<std::string> failures;
  for (const std::string& place : places()) {
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      failures.push_back(dlerror());
      continue;
    }
    const auto entry = reinterpret_cast<const CudaModule* (*)()>(dlsym(handle, kCudaModuleEntry));
    const CudaModule* module = entry ? entry() : nullptr;
    if (!module || std::string_view(module->interface) != kCudaInterface)
      throw DeviceError(ExitCode::VersionSkew,
                        fmt::format("cuda: {} is for \"{}\", but this program is \"{}\"; install both from the same build",
                                    place, module ? module->interface : "no version of Trivet", kCudaInterface));
    return *module;
  }
  throw DeviceError(ExitCode::Usage,
                    fmt::format("cuda: the module {} was not found; build with -DTRIVET_CUDA=ON on a machine with nvcc, "
                                "or set device to \"cpu\" ({})",
                                kFile, fmt::join(failures, "; ")));
}

}  // namespace

const CudaModule& cuda_module() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!module_in_use) module_in_use = &open_module();
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
