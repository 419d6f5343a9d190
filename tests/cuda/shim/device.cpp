// Devices, configuration, errors.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "runtime.h"

namespace cuda_shim {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_of_thread = 0;
thread_local bool in_host_function = false;

int64_t number_from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoll(text, nullptr, 10) : otherwise;
}

Configuration configuration_from_environment() {
  Configuration c;
  c.devices = static_cast<int>(number_from_environment("CUDA_SHIM_DEVICES", c.devices));
  c.driver_version = static_cast<int>(number_from_environment("CUDA_SHIM_DRIVER_VERSION", c.driver_version));
  c.memory_bytes = number_from_environment("CUDA_SHIM_MEMORY_BYTES", c.memory_bytes);
  c.protect = number_from_environment("CUDA_SHIM_PROTECT", c.protect) != 0;
  c.capability = static_cast<int>(number_from_environment("CUDA_SHIM_CAPABILITY", c.capability));
  if (const char* text = std::getenv("CUDA_SHIM_ORDER")) {
    const std::string order = text;
    if (order == "reversed") {
      c.order = Order::Reversed;
    } else if (order != "in_order") {
      c.order = Order::Shuffled;
      c.seed = static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
    }
  }
  return c;
}

cudaError_t missing_device(const Configuration& c) {
  if (c.driver_version < CUDART_VERSION) return cudaErrorInsufficientDriver;
  return c.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}

}  // namespace

Runtime::Runtime() : configuration(configuration_from_environment()) {}

Runtime& runtime() {
  static Runtime& instance = *new Runtime;  // streams may run until the process ends
  return instance;
}

const Configuration& configuration() { return runtime().configuration; }

void configure(const Configuration& changed) {
  std::vector<int> devices;
  {
    const Locked lock;
    for (auto& [index, device] : runtime().devices) devices.push_back(index);
  }
  for (int device : devices) wait_for_all_streams(device);
  const Locked lock;
  runtime().configuration = changed;
  for (auto& [index, device] : runtime().devices) {
    device.fault = cudaSuccess;
    device.report.clear();
  }
  last_error = cudaSuccess;
  if (device_of_thread >= changed.devices) device_of_thread = 0;
}

Counts counts() {
  const auto& c = runtime().counts;
  return {.launches = c.launches,
          .graph_launches = c.graph_launches,
          .host_waits = c.host_waits,
          .allocations = c.allocations,
          .events_made = c.events_made,
          .streams_made = c.streams_made,
          .pageable_copies = c.pageable_copies};
}

void break_device(cudaError_t error) { break_device(current_device(), error, ""); }

void break_device(int device, cudaError_t error, const std::string& report) {
  const Locked lock;
  Device& state = runtime().devices[device];
  if (state.fault != cudaSuccess) return;
  state.fault = error;
  state.report = report;
  if (!report.empty()) std::fprintf(stderr, "cuda shim: %s\n", report.c_str());
}

bool broken(int device) {
  const Locked lock;
  return runtime().devices[device].fault != cudaSuccess;
}

std::string fault_report() {
  const Locked lock;
  return runtime().devices[current_device()].report;
}

int64_t allocated_bytes() {
  const Locked lock;
  return runtime().devices[current_device()].allocated_bytes;
}

int current_device() { return device_of_thread; }

cudaError_t obstacle() {
  if (in_host_function) return cudaErrorNotPermitted;
  const Locked lock;
  if (const cudaError_t error = missing_device(runtime().configuration)) return error;
  return runtime().devices[current_device()].fault;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

InHostFunction::InHostFunction() { in_host_function = true; }
InHostFunction::~InHostFunction() { in_host_function = false; }

}  // namespace cuda_shim

using cuda_shim::configuration;
using cuda_shim::remember;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define CUDA_SHIM_NAME(name) \
  case name: return #name
    CUDA_SHIM_NAME(cudaSuccess);
    CUDA_SHIM_NAME(cudaErrorInvalidValue);
    CUDA_SHIM_NAME(cudaErrorMemoryAllocation);
    CUDA_SHIM_NAME(cudaErrorInitializationError);
    CUDA_SHIM_NAME(cudaErrorInvalidConfiguration);
    CUDA_SHIM_NAME(cudaErrorInvalidDevicePointer);
    CUDA_SHIM_NAME(cudaErrorInvalidMemcpyDirection);
    CUDA_SHIM_NAME(cudaErrorInsufficientDriver);
    CUDA_SHIM_NAME(cudaErrorDevicesUnavailable);
    CUDA_SHIM_NAME(cudaErrorInvalidDeviceFunction);
    CUDA_SHIM_NAME(cudaErrorNoDevice);
    CUDA_SHIM_NAME(cudaErrorInvalidDevice);
    CUDA_SHIM_NAME(cudaErrorNoKernelImageForDevice);
    CUDA_SHIM_NAME(cudaErrorECCUncorrectable);
    CUDA_SHIM_NAME(cudaErrorInvalidResourceHandle);
    CUDA_SHIM_NAME(cudaErrorNotReady);
    CUDA_SHIM_NAME(cudaErrorIllegalAddress);
    CUDA_SHIM_NAME(cudaErrorLaunchOutOfResources);
    CUDA_SHIM_NAME(cudaErrorMisalignedAddress);
    CUDA_SHIM_NAME(cudaErrorLaunchFailure);
    CUDA_SHIM_NAME(cudaErrorNotPermitted);
    CUDA_SHIM_NAME(cudaErrorNotSupported);
    CUDA_SHIM_NAME(cudaErrorSystemDriverMismatch);
    CUDA_SHIM_NAME(cudaErrorStreamCaptureUnsupported);
    CUDA_SHIM_NAME(cudaErrorStreamCaptureInvalidated);
    CUDA_SHIM_NAME(cudaErrorStreamCaptureUnmatched);
    CUDA_SHIM_NAME(cudaErrorStreamCaptureUnjoined);
    CUDA_SHIM_NAME(cudaErrorStreamCaptureIsolation);
    CUDA_SHIM_NAME(cudaErrorCapturedEvent);
    CUDA_SHIM_NAME(cudaErrorStreamCaptureWrongThread);
    CUDA_SHIM_NAME(cudaErrorUnknown);
#undef CUDA_SHIM_NAME
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    default: return "an error for which the shim has no text";
  }
}

cudaError_t cudaGetLastError() { return std::exchange(cuda_shim::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return cuda_shim::last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const cudaError_t error = cuda_shim::missing_device(configuration())) return remember(error);
  *count = configuration().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = cuda_shim::missing_device(configuration())) return remember(error);
  if (device < 0 || device >= configuration().devices) return remember(cudaErrorInvalidDevice);
  cuda_shim::device_of_thread = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = cuda_shim::current_device();
  return remember(cuda_shim::missing_device(configuration()));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return cuda_shim::call([&] {
    if (device < 0 || device >= configuration().devices) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "shim");
    properties->uuid.bytes[15] = static_cast<char>(device + 1);
    properties->totalGlobalMem = static_cast<size_t>(configuration().memory_bytes);
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = cuda_shim::max_shared_bytes();
    properties->sharedMemPerMultiprocessor = cuda_shim::max_shared_bytes() + 1024;
    properties->warpSize = warpSize;
    properties->maxThreadsPerBlock = 1024;
    properties->major = configuration().capability / 10;
    properties->minor = configuration().capability % 10;
    properties->multiProcessorCount = configuration().multiprocessors;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->pciBusID = device + 1;
    properties->l2CacheSize = 50 << 20;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; return cudaSuccess;
    case cudaDevAttrWarpSize: *value = properties.warpSize; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
  }
  return remember(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return cuda_shim::call([&] {
    if (device < 0 || device >= configuration().devices) return cudaErrorInvalidDevice;
    const int written = std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
    return written < length ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = configuration().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return cuda_shim::call([] {
    if (const cudaError_t error = cuda_shim::refuse_in_capture()) return error;
    cuda_shim::wait_for_all_streams(cuda_shim::current_device());
    return cuda_shim::obstacle();
  });
}
