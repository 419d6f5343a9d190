#include "core/cuda/memory.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "core/cuda/device.h"
#include "core/cuda/error.h"
#include "core/error.h"

namespace trivet::cuda {
namespace {

double gibibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

[[noreturn]] void throw_out_of_memory(int device, int64_t bytes) {
  size_t free_bytes = 0, total_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  throw OutOfMemoryError(
      fmt::format("cuda:{}: out of memory: requested {:.2f} GiB ({} bytes), {:.2f} of {:.2f} GiB are free; use a smaller "
                  "micro-batch, recomputation, a higher ZeRO stage or offload",
                  device, gibibytes(static_cast<size_t>(bytes)), bytes, gibibytes(free_bytes), gibibytes(total_bytes)));
}

class DeviceAllocator final : public Allocator {
 public:
  explicit DeviceAllocator(int device) : device_(device) {}
  Device device() const override { return Device::Cuda; }
  void* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    const DeviceScope scope(device_);
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw_out_of_memory(device_, bytes);
    }
    check(error, "cudaMalloc");
    // The default stream writes the zeros; our streams are not ordered with it, so wait here.
    CUDA_CHECK(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), nullptr));
    CUDA_CHECK(cudaStreamSynchronize(nullptr));
    return data;
  }
  void release(void* data, int64_t) noexcept override { cudaFree(data); }

 private:
  int device_;
};

// Host memory that the system can still provide; 0 if it does not say.
int64_t available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    int64_t kibibytes = 0;
    if (key == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

[[noreturn]] void throw_out_of_pinned_memory(int64_t bytes) {
  const int64_t available = available_host_bytes();
  throw OutOfMemoryError(
      fmt::format("pinned host memory: the system refused to allocate {:.2f} GiB ({} bytes), {:.2f} GiB of host memory "
                  "are free; offload less, or raise the limits of memory and of locked memory (ulimit -l)",
                  gibibytes(static_cast<size_t>(bytes)), bytes, gibibytes(static_cast<size_t>(available))));
}

class PinnedAllocator final : public Allocator {
 public:
  explicit PinnedAllocator(int device) : device_(device) {}
  Device device() const override { return Device::Cpu; }
  void* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    const DeviceScope scope(device_);
    void* data = nullptr;
    const cudaError_t error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw_out_of_pinned_memory(bytes);
    }
    check(error, "cudaHostAlloc");
    std::memset(data, 0, static_cast<size_t>(bytes));
    return data;
  }
  void release(void* data, int64_t) noexcept override { cudaFreeHost(data); }

 private:
  int device_;
};

}  // namespace

std::unique_ptr<Allocator> make_device_allocator(int device) { return std::make_unique<DeviceAllocator>(device); }
std::unique_ptr<Allocator> make_pinned_allocator(int device) { return std::make_unique<PinnedAllocator>(device); }

}  // namespace trivet::cuda
