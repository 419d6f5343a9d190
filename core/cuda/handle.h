// Owner of a CUDA object. Move-only.
//
//   using EventHandle = UniqueHandle<cudaEvent_t, cudaEventDestroy>;
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace trivet::cuda {

template <typename Handle, cudaError_t (*destroy)(Handle)>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  // The result of `destroy` is ignored: a destructor cannot use it, and the next call reports a device error again.
  ~UniqueHandle() {
    if (handle_) destroy(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using StreamHandle = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = UniqueHandle<cudaEvent_t, cudaEventDestroy>;

}  // namespace trivet::cuda
