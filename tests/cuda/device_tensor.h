// Tensors for tests in device memory, on a GPU or on the fake device.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <utility>

#include "core/cuda/error.h"
#include "kernels/cuda/math.h"
#include "tests/kernels/host_tensor.h"

namespace trivet::kernels {

// A copy of a host tensor. `elements_before` unused elements precede it, so that it is not aligned as an allocation is.
class DeviceTensor {
 public:
  explicit DeviceTensor(const HostTensor& host, int64_t elements_before = 0)
      : dtype_(host.view().dtype), shape_(host.view().shape), offset_bytes_(elements_before * size_of(dtype_)) {
    const int64_t bytes = host.view().bytes();
    CUDA_CHECK(cudaMalloc(&memory_, static_cast<size_t>(offset_bytes_ + bytes)));
    if (bytes > 0) CUDA_CHECK(cudaMemcpy(view().data, host.view().data, static_cast<size_t>(bytes), cudaMemcpyDefault));
    CUDA_CHECK(cudaDeviceSynchronize());  // a copy from pageable memory may return before it has arrived
  }
  ~DeviceTensor() { cudaFree(memory_); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  TensorView view() const { return {static_cast<std::byte*>(memory_) + offset_bytes_, dtype_, shape_}; }
  // Waits for all streams and returns what the tensor then holds.
  HostTensor read() const {
    CUDA_CHECK(cudaDeviceSynchronize());
    HostTensor host(dtype_, shape_);
    const auto bytes = static_cast<size_t>(host.view().bytes());
    if (bytes > 0) CUDA_CHECK(cudaMemcpy(host.view().data, view().data, bytes, cudaMemcpyDefault));
    return host;
  }

 private:
  DType dtype_;
  Shape shape_;
  int64_t offset_bytes_;
  void* memory_ = nullptr;
};

// A stream with a workspace of exactly the requested size, full of NaN.
class TestLaunch {
 public:
  explicit TestLaunch(int64_t workspace_bytes) : workspace_(poison(workspace_bytes)), workspace_bytes_(workspace_bytes) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~TestLaunch() { cudaStreamDestroy(stream_); }
  TestLaunch(const TestLaunch&) = delete;
  TestLaunch& operator=(const TestLaunch&) = delete;

  cuda::Launch launch() const {
    return {.stream = stream_, .multiprocessors = 4, .workspace = {workspace_.view().data, DType::UInt8, {workspace_bytes_}}};
  }

 private:
  // All bits are ones, which is not a number in any type.
  static HostTensor poison(int64_t bytes) {
    HostTensor memory(DType::UInt8, {bytes});
    if (bytes > 0) std::memset(memory.view().data, 0xff, static_cast<size_t>(bytes));
    return memory;
  }

  DeviceTensor workspace_;
  int64_t workspace_bytes_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace trivet::kernels
