// Device memory of a benchmark, freed at the end of the scope.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/cuda/error.h"

namespace trivet::cuda {

class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes) { CUDA_CHECK(cudaMalloc(&data_, static_cast<size_t>(bytes))); }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace trivet::cuda
